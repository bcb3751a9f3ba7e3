// SPDX-License-Identifier: Apache-2.0
'use strict';
fetch('api/v1/stats')
  .then((answer) => answer.json())
  .then((stats) => { document.getElementById('stats').textContent = JSON.stringify(stats, null, 2); });
