# SPDX-License-Identifier: Apache-2.0
"""Drives a headless Chromium through WebDriver, the W3C's protocol of JSON over HTTP. The tests
need the programs chromium and chromedriver in PATH, but no WebDriver package for Python:
python3-selenium would spare about 100 lines here, at the price of 14 packages, and only the
distribution's own python3 could import it, not the first python3 in PATH."""

import base64
import http.client
import json
import os
import re
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../live"))
from lib.process import Limit, wait_until  # noqa: E402

ELEMENT = "element-6066-11e4-a52e-4f735466cecf"
KEYS = {"Enter": "\ue007", "Escape": "\ue00c", "Tab": "\ue004", "Space": "\ue00d"}


class BrowserError(Exception):
    """The error that is raised if the driver refuses a command. `kind` is the error's name in
    WebDriver."""

    def __init__(self, kind, message):
        super().__init__("%s: %s" % (kind, message.split("\n")[0]))
        self.kind = kind


class Element:
    def __init__(self, browser, ident):
        self.browser, self.ident = browser, ident

    def _do(self, method, what, body=None):
        return self.browser.do(method, "/element/%s/%s" % (self.ident, what), body)

    text = property(lambda self: self._do("GET", "text"))
    value = property(lambda self: self._do("GET", "property/value"))
    shown = property(lambda self: self._do("GET", "displayed"))
    enabled = property(lambda self: self._do("GET", "enabled"))
    label = property(lambda self: self._do("GET", "computedlabel"))

    def attribute(self, name):
        return self._do("GET", "attribute/" + name)

    def click(self):
        self._do("POST", "click", {})

    def clear(self):
        self._do("POST", "clear", {})

    def type(self, text):
        self._do("POST", "value", {"text": text})


class Browser:
    """A browser with its own profile. Every wait has a time limit. If a wait exceeds its limit, the
    test fails with a message that names the awaited condition."""

    def __init__(self, width=1280, height=900):
        self.folder = tempfile.TemporaryDirectory(prefix="lw-browser-")
        self.log = open(os.path.join(self.folder.name, "driver.log"), "wb+")
        self.process = subprocess.Popen(
            ["chromedriver", "--port=0", "--log-level=SEVERE"],
            stdin=subprocess.DEVNULL,
            stdout=self.log,
            stderr=self.log,
            env=dict(os.environ, HOME=self.folder.name, TMPDIR=self.folder.name),
            start_new_session=True,
        )
        self.session = None
        try:
            self.connection = http.client.HTTPConnection("127.0.0.1", self._port(), timeout=320)
            self._open(width, height)
        except BaseException:
            self.close()
            raise

    def _port(self):
        limit = Limit(30)
        while not limit.over() and self.process.poll() is None:
            self.log.seek(0)
            found = re.search(rb"started successfully on port (\d+)", self.log.read())
            if found:
                return int(found.group(1))
            time.sleep(0.05)
        raise AssertionError("chromedriver does not start")

    def _open(self, width, height):
        arguments = [
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--no-first-run",
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-sync",
            "--force-device-scale-factor=1",
            "--hide-scrollbars",
            "--window-size=%d,%d" % (width, height),
        ]
        wanted = {
            "browserName": "chrome",
            "goog:chromeOptions": {"args": arguments},
            "goog:loggingPrefs": {"browser": "ALL"},
            "unhandledPromptBehavior": "ignore",
        }
        wanted["timeouts"] = {"script": 300000}  # axe takes long on a loaded machine
        self.session = self._ask("POST", "/session", {"capabilities": {"alwaysMatch": wanted}})[
            "sessionId"
        ]

    def _ask(self, method, path, body=None):
        self.connection.request(
            method,
            path,
            None if body is None else json.dumps(body),
            {"Content-Type": "application/json"},
        )
        value = json.loads(self.connection.getresponse().read())["value"]
        if isinstance(value, dict) and "error" in value:
            raise BrowserError(value["error"], value["message"])
        return value

    def do(self, method, path, body=None):
        return self._ask(method, "/session/%s%s" % (self.session, path), body)

    def close(self):
        try:
            if self.session:
                self.do("DELETE", "")
        except (OSError, BrowserError, http.client.HTTPException):
            pass  # The driver's process is ended below even if this request fails.
        self.process.terminate()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait(10)
        self.log.close()
        # Chromium's processes may outlive their driver, and write into the profile.
        wait_until(self._clean_up, 30, "an end of writes to Chromium's profile")

    def _clean_up(self):
        try:
            self.folder.cleanup()
        except OSError:
            return False
        return True

    # --- looking ----------------------------------------------------------------------------------

    def go(self, url):
        self.do("POST", "/url", {"url": url})

    url = property(lambda self: self.do("GET", "/url"))
    title = property(lambda self: self.do("GET", "/title"))

    def run(self, script, *args):
        return self.do("POST", "/execute/sync", {"script": script, "args": list(args)})

    def run_async(self, script, *args):
        """Runs an asynchronous script in the page and returns its result. The script must pass the
        result to the function that it gets as its last argument."""
        return self.do("POST", "/execute/async", {"script": script, "args": list(args)})

    def devtools(self, command, **params):
        return self.do("POST", "/goog/cdp/execute", {"cmd": command, "params": params})

    def all(self, selector):
        found = self.do("POST", "/elements", {"using": "css selector", "value": selector})
        return [Element(self, e[ELEMENT]) for e in found]

    def text(self, selector="body"):
        """Returns the visible text of the first element that matches the selector, or "" if no
        element matches."""
        return self.run(
            "const e = document.querySelector(arguments[0]); return e ? e.innerText : ''", selector
        )

    def texts(self, selector):
        return self.run(
            "return [...document.querySelectorAll(arguments[0])].map((e) => e.innerText)", selector
        )

    def problems(self):
        """Returns the errors that the page has written to the console since the last call."""
        return [
            e["message"]
            for e in self.do("POST", "/se/log", {"type": "browser"})
            if e["level"] == "SEVERE"
        ]

    # --- waiting and acting -----------------------------------------------------------------------

    def until(self, what, ready, limit_s=30):
        """Calls ready() until it returns a true value, and returns that value. Fails after the time
        limit."""
        limit = Limit(limit_s)
        while True:
            try:
                value = ready()
            except BrowserError as e:
                if e.kind not in (
                    "stale element reference",
                    "no such element",
                    "element not interactable",
                    "element click intercepted",
                ):
                    raise
                value = None
            if value:
                return value
            if limit.over():
                raise AssertionError(
                    "no %s within %g s; the page shows at %s:\n%s"
                    % (what, limit_s, self.url, self.text()[:3000])
                )
            time.sleep(0.1)

    def one(self, selector, limit_s=30):
        return self.until(
            selector, lambda: next(iter(e for e in self.all(selector) if e.shown), None), limit_s
        )

    def until_text(self, selector, wanted, limit_s=30):
        return self.until(
            "%r in %s" % (wanted, selector),
            lambda: re.search(wanted, self.text(selector), re.S),
            limit_s,
        )

    def button(self, text, within="body"):
        """Waits for the button whose label begins with `text`, and returns the button."""
        script = "return [...document.querySelectorAll(arguments[0] + ' button')].filter((e) => e.checkVisibility() && e.textContent.startsWith(arguments[1]))[0]"
        return Element(
            self, self.until("a button %r" % text, lambda: self.run(script, within, text))[ELEMENT]
        )

    def click(self, selector):
        self.until(
            "a click on " + selector, lambda: [e.click() or True for e in self.all(selector)[:1]]
        )

    def press(self, text, within="body"):
        """Clicks the button whose label begins with `text`."""
        self.until("a click on %r" % text, lambda: self.button(text, within).click() or True)

    def fill(self, selector, text):
        e = self.one(selector)
        e.clear()
        e.type(text)

    def keys(self, *names):
        """Presses the keys in turn. The element that has the focus receives them."""
        actions = []
        for name in names:
            value = KEYS.get(name, name)
            actions += [{"type": "keyDown", "value": value}, {"type": "keyUp", "value": value}]
        self.do(
            "POST", "/actions", {"actions": [{"type": "key", "id": "keyboard", "actions": actions}]}
        )

    def resize(self, width, height=900):
        self.devtools(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=False,
        )

    def media(self, **features):
        """Emulates media features of CSS, for example prefers_color_scheme="dark"."""
        self.devtools(
            "Emulation.setEmulatedMedia",
            features=[{"name": k.replace("_", "-"), "value": v} for k, v in features.items()],
        )

    def shot(self, path=None, quality_colors=0):
        """Returns a screenshot of the visible part of the page as PNG. If a path is given, also
        stores the screenshot in that file."""
        png = base64.b64decode(self.do("GET", "/screenshot"))
        if path:
            with open(path, "wb") as f:
                f.write(png)
        return png
