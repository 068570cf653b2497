#include "infer/context.h"

namespace braid {

Context::Context(const ContextOptions& o)
    : own_(std::make_unique<ThreadPool>(o.threads > 0 ? o.threads : cpu_count(), o.kernels)),
      pool_(*own_),
      activations_(o.activations) {}

}  // namespace braid
