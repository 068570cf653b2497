#include "kernels/router/router.h"

#include "kernels/router/router_ref.h"

namespace braid {

void router_fwd(Mat<const float> logits, size_t k, int32_t* chosen, Mat<float> w) {
  for (size_t r = 0; r < logits.rows; ++r)
    ref::router_fwd<float>(logits.row(r), logits.cols, k, chosen + r * k, w.row(r));
}

void router_bwd(Mat<const float> w, const int32_t* chosen, Mat<const float> dw, Mat<float> dlogits) {
  for (size_t r = 0; r < w.rows; ++r)
    ref::router_bwd<float>(w.row(r), chosen + r * w.cols, dw.row(r), dlogits.cols, w.cols, dlogits.row(r));
}

}  // namespace braid
