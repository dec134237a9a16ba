# The front door over CMake and Ninja. Each target installs what it needs first (tools/packages.txt).
#   make build   programs in build/bin, libraries in build/lib
#   make demo    a server, eight processes, one shared file, every byte checked; an MPI job with HDF5
#   make test    every test: release, asan+ubsan, and tsan for what has threads
#   make bench   the benchmarks, as tables; JSON and pictures in build/bench
#   make tidy    format, layers, links and other house rules (fails on what it finds; FIX=1 formats)
#   make fuzz    the fuzzers, for SECONDS (default 600) each
#   make install PREFIX=/usr/local
JOBS ?= 2
PREFIX ?= /usr/local
SECONDS ?= 600
export CMAKE_BUILD_PARALLEL_LEVEL = $(JOBS)

.PHONY: help build demo test bench tidy fuzz install clean deps-build deps-test deps-tidy
help:
	@sed -n 's/^#   //p' Makefile

deps-build:
	@tools/install_packages build mpi
deps-test:
	@tools/install_packages build mpi test tidy
deps-tidy:
	@tools/install_packages build tidy

build: deps-build
	@tools/configure release
	@cmake --build --preset release

demo: deps-build
	@tools/configure release
	@cmake --build --preset release --target forebay forebayd mpi-libraries
	@tools/demo
	@tools/demo_mpi

test: deps-test
	@tools/run_tests $(TESTS)

# Without GlusterFS or matplotlib there are fewer rows and no pictures, and a line that says so.
bench: build
	@tools/install_packages gluster plot || :
	@mkdir -p build/bench
	@build/bin/forebay bench base --save build/bench/base.json
	@build/bin/forebay bench forward --save build/bench/forward.json
	@build/bin/forebay bench ibcs --save build/bench/ibcs.json
	@build/bin/forebay bench mpi --save build/bench/mpi.json
	@build/bin/forebay bench posix --save build/bench/posix.json
	@build/bin/forebay bench mpi --gluster --save build/bench/mpi-gluster.json
	@tools/plot_bench build/bench/forward.json build/bench || :
	@tools/plot_bench build/bench/ibcs.json build/bench || :

tidy: deps-tidy
	@tools/configure release
	@tools/check_layers
	@tools/tidy $(if $(FIX),--fix)

fuzz: deps-test
	@tools/fuzz decode $(SECONDS)
	@tools/fuzz session $(SECONDS)
	@tools/fuzz shared $(SECONDS)

install: build
	@cmake --install build --prefix $(PREFIX)

clean:
	@rm -rf build
