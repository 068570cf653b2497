// The version of these headers; braid_version() in braid.h tells that of the library.
#pragma once

#define BRAID_VERSION "0.1.0"
#define BRAID_VERSION_MAJOR 0
#define BRAID_VERSION_MINOR 1
#define BRAID_VERSION_PATCH 0
