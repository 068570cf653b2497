# The two commands of the README are `make demo` and `make test`; each installs what is missing, builds, and does its job.
BUILD := build
PREFIX ?= /usr/local

.PHONY: all deps demo test install check-dev check-tsan docs format clean

all: $(BUILD)/build.ninja
	ninja -C $(BUILD) braid

$(BUILD)/build.ninja: CMakeLists.txt CMakePresets.json $(wildcard cmake/*)
	tools/install_deps.sh
	cmake --preset release

deps:
	tools/install_deps.sh

demo: all
	$(BUILD)/braid demo

test: $(BUILD)/build.ninja
	ninja -C $(BUILD)
	ctest --test-dir $(BUILD) --output-on-failure -L fast -j2

# The library and the program: make install PREFIX=/opt/braid
install: $(BUILD)/build.ninja
	ninja -C $(BUILD) braid libbraid
	cmake --install $(BUILD) --prefix $(PREFIX)

# The same tests under AddressSanitizer and UndefinedBehaviorSanitizer, with every arena poisoned with NaN.
check-dev:
	tools/install_deps.sh
	cmake --preset dev && ninja -C build-dev
	ctest --test-dir build-dev --output-on-failure -L fast

# The threaded tests under ThreadSanitizer.
check-tsan:
	tools/install_deps.sh
	cmake --preset tsan && ninja -C build-tsan
	ctest --test-dir build-tsan --output-on-failure -L threads

# Every generated block of the Markdown pages, and docs/reference/cli.md.
docs: all
	tools/update_docs.sh $(BUILD)/braid

format:
	git ls-files '*.h' '*.cpp' | xargs clang-format -i

clean:
	rm -rf build build-dev build-tsan
