#include "cli/sampling.h"

#include <fmt/format.h>

#include "io/json.h"

namespace braid {

Result<SamplerOptions> SamplingFlags::resolve(const GenerationConfig& model) const {
  SamplerOptions o = model.sampling();
  if (!model.says_how) {
    o.temperature = 0.8f, o.top_k = 40, o.top_p = 0.95f, o.min_p = 0.05f;
    o.filters = SamplerOptions().filters;
  }
  const bool own_penalties = o.repetition_penalty == 1 && o.presence_penalty == 0 && o.frequency_penalty == 0;
  if (own_penalties) o.last_n = 64;  // else the model's, which look at everything
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
  if (const std::vector<Problem> problems = validate(o); !problems.empty()) return wrong_options(problems);
  return o;
}

int64_t most_tokens(const std::optional<int64_t>& given, const GenerationConfig& model, int64_t otherwise) {
  return given ? *given : model.max_new_tokens > 0 ? model.max_new_tokens : otherwise;
}

void tell_ignored(const GenerationConfig& model) {
  if (!model.ignored.empty())
    tell("note: generation_config.json: without effect: {}\n", fmt::join(model.ignored, ", "));
}

std::string draft_text(const Generated& r) {
  std::string s = fmt::format("draft: {} of {} guesses right ({:.0f} %), {} tokens in {} passes", r.accepted,
                              r.drafted, 100 * r.acceptance(), r.passes + r.accepted, r.passes);
  if (r.speed_up() > 0) s += fmt::format(", {:.2f} times as fast as its own single steps", r.speed_up());
  return s;
}

Json draft_json(const Generated& r) {
  return {{"passes", r.passes},
          {"drafted", r.drafted},
          {"accepted", r.accepted},
          {"acceptance", r.acceptance()},
          {"speed_up", r.speed_up()}};
}

}  // namespace braid
