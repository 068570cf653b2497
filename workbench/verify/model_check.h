// The promises of a whole model: any cut of a sequence, any thread count, any restored state and any company
// in a batch give the same; and its logits and gradient are those of the references in double.
#pragma once

#include <string>
#include <vector>

#include "model/model.h"

namespace braid {

struct ModelCheckRow {
  std::string what;
  size_t checks, wrong;
  double worst;        // largest relative rms, where there is one
  std::string detail;  // of the first that is wrong, or a remark
};

std::vector<ModelCheckRow> check_model(Model& model, const KernelChoice& kernels = {});

}  // namespace braid
