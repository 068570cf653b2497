#include "cli/version.h"

namespace braid {

const char* const kVersion = BRAID_VERSION;
const char* const kCommit = BRAID_COMMIT;
const char* const kCompiler =
#if defined(__clang__)
    "clang " __clang_version__;
#else
    "g++ " __VERSION__;
#endif

}  // namespace braid
