#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Downloads the tools that the chart's tests need into a folder. A complete folder is not changed.
# usage: tests/helm/tools.sh FOLDER
#
# The tools are helm, kubeconform, and the schemas that kubeconform uses. The programs and the CRDs
# of KEDA and the Prometheus operator come as Go modules. Kubernetes' own schemas come from the
# Python package kubernetes-validate. Building helm takes some minutes.
# exit: 0 everything is there, 1 something could not be downloaded or built, 2 wrong usage
set -eu
[ $# -eq 1 ] || { sed -n '4s/^# //p' "$0" >&2; exit 2; }
command -v go >/dev/null || { echo "tools.sh: Go is needed (package golang-go)" >&2; exit 1; }
mkdir -p "$1"
folder=$(cd "$1" && pwd)
[ ! -e "$folder/.complete" ] || exit 0

module_dir() {
    (cd "$folder" && go mod download -json "$1" | sed -n 's/^\t"Dir": "\(.*\)",$/\1/p')
}

GOBIN=$folder/bin
export GOBIN GOFLAGS=-mod=mod
go install helm.sh/helm/v3/cmd/helm@v3.10.3
go install github.com/yannh/kubeconform/cmd/kubeconform@v0.6.3
mkdir -p "$folder/crds"
cp "$(module_dir github.com/kedacore/keda/v2@v2.13.0)/config/crd/bases/keda.sh_scaledobjects.yaml" \
    "$folder/crds"
operator=$(module_dir github.com/prometheus-operator/prometheus-operator@v0.71.2)/example/prometheus-operator-crd
cp "$operator/monitoring.coreos.com_servicemonitors.yaml" \
    "$operator/monitoring.coreos.com_prometheusrules.yaml" "$folder/crds"
chmod -R u+w "$folder/crds"
python3 -m pip download --quiet --no-deps --dest "$folder" kubernetes-validate==1.37.0
(cd "$folder" && python3 -m zipfile -e kubernetes_validate-1.37.0-*.whl wheel)
touch "$folder/.complete"
