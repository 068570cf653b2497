#include "cli/sampling.h"

namespace braid {

Result<SamplerOptions> SamplingFlags::resolve(const GenerationConfig& model) const {
  SamplerOptions o = model.sampling();
  if (!model.says_how) o.temperature = 0.8f, o.top_k = 40, o.top_p = 0.95f, o.min_p = 0.05f, o.last_n = 64;
  const auto take = [](const std::optional<double>& given, float& value) {
    if (given) value = static_cast<float>(*given);
  };
  take(temperature, o.temperature), take(top_p, o.top_p), take(min_p, o.min_p), take(typical_p, o.typical_p);
  take(top_n_sigma, o.top_n_sigma), take(xtc_probability, o.xtc_probability);
  take(xtc_threshold, o.xtc_threshold), take(repetition_penalty, o.repetition_penalty);
  take(presence_penalty, o.presence_penalty), take(frequency_penalty, o.frequency_penalty);
  if (top_k) o.top_k = *top_k;
  if (last_n) o.last_n = *last_n;
  o.seed = static_cast<uint64_t>(seed);
  if (!samplers.empty()) {
    Result<std::vector<Filter>> filters = parse_filters(samplers);
    if (!filters) return filters.error();
    o.filters = *std::move(filters);
  }
  if (greedy) o.temperature = 0, o.filters = {Filter::kPenalties, Filter::kTemperature};
  if (const std::vector<Problem> problems = validate(o); !problems.empty())
    return to_error("these options cannot be used", problems);
  return o;
}

}  // namespace braid
