// Whether a backward writes its gradient or adds to what is there: said at every call.
#pragma once

namespace braid {

enum class Into : bool { kOverwrite, kAdd };

}  // namespace braid
