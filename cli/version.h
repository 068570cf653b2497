// Filled in by the build.
#pragma once

namespace braid {

extern const char* const kVersion;   // "0.1.0"
extern const char* const kCommit;    // of the source tree when it was configured, or "unknown"
extern const char* const kCompiler;  // name and version

}  // namespace braid
