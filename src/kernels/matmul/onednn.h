// Products by oneDNN: all of a panel in the calling thread. For AMX, and to compare our own with.
#pragma once

#include "kernels/matmul/matmul.h"

namespace braid {

void onednn_panel(const MatmulPanel<float>& p);

// False, with C as it was, if oneDNN has no such product or no memory for it. Whether it has one depends on
// the panel's shape and strides alone, so all threads agree.
bool onednn_bf16_panel(const MatmulPanel<bf16>& p) noexcept;

}  // namespace braid
