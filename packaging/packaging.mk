# SPDX-License-Identifier: Apache-2.0
# Packages and releases. All of it but release-check makes chroots, which only root may.
DISTRIBUTION ?= bookworm
.PHONY: deb deb-twice deb-test deb-secured deb-systemd tarball tarball-twice tarball-test release \
    release-check
##@ Packages
## deb: build the Debian packages of DISTRIBUTION (bookworm, trixie) in a clean chroot, into build/deb (as root)
deb:
	@packaging/deb.sh build $(DISTRIBUTION)
## deb-twice: build them again elsewhere, and compare the bytes (as root)
deb-twice:
	@packaging/deb.sh twice $(DISTRIBUTION)
## deb-test: install them in a clean chroot and run their tests, the demo among them (as root)
deb-test:
	@packaging/deb.sh test $(DISTRIBUTION)
## deb-secured: install them in a clean chroot, and follow the how-tos with a secured Kafka 4 and a Valkey with TLS (as root)
deb-secured: $(B)/tests/tools/kafkatool
	@LW_BUILD=$(abspath $(B)) packaging/deb.sh secured $(DISTRIBUTION)
## deb-systemd: boot systemd in a clean chroot, and run services of the installed unit (as root)
deb-systemd:
	@packaging/deb.sh systemd $(DISTRIBUTION)
## tarball: build the tarball for other distributions, with its bill of materials, into build/tarball (as root)
tarball:
	@packaging/tarball.sh build
## tarball-twice: build it again, and compare the bytes (as root)
tarball-twice:
	@packaging/tarball.sh twice
## tarball-test: unpack it in a clean chroot of Debian 13, and run the demo (as root)
tarball-test:
	@packaging/tarball.sh test
## release-check: name everything that keeps the newest commit from being released
release-check:
	@packaging/release.sh check
## release: check, then build and test packages, tarball, wheel and npm tarball, with checksums and notes, in build/release (as root)
release:
	@packaging/release.sh build
