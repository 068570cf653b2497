#include <braid/braid.h>
#include <braid/version.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <limits>
#include <map>
#include <memory>
#include <new>
#include <string>
#include <vector>

#include "infer/generate.h"
#include "infer/session.h"
#include "infer/text_model.h"
#include "kernels/registry.h"
#include "model/model.h"
#include "model/state_file.h"
#include "ops/op.h"

// A handle is what it holds, behind a pointer that C cannot look into.
struct braid_error {
  braid_status status;
  braid::Error error;
};
struct braid_context {
  struct Shared {
    explicit Shared(const braid::ContextOptions& o) : context(o) {}
    braid::Context context;
    std::atomic_flag busy = ATOMIC_FLAG_INIT;
  };
  std::shared_ptr<Shared> shared;
};
struct braid_model {
  std::shared_ptr<const braid::TextModel> text;
};
struct braid_session {
  std::shared_ptr<const braid::TextModel> text;
  std::shared_ptr<braid_context::Shared> context;
  braid::Session session;
  std::vector<float> logits;  // after the last token, or empty
  bool broken = false;        // memory ran out half-way through a pass
};
struct braid_state {
  std::shared_ptr<const braid::TextModel> text;
  braid::State state;
};

namespace braid {
namespace {

// A mistake of the caller's, or what a file is wrong about.
struct Failure {
  braid_status status;
  Error error;
};
Failure invalid(std::string what, std::string fix) {
  return {BRAID_INVALID, {std::move(what), std::move(fix)}};
}
Failure failed(const Error& e) { return {BRAID_FAILED, e}; }
Failure null(const char* name) { return invalid(fmt::format("{} is NULL", name), "give a pointer"); }

void tell(braid_error** to, const Failure& f) {
  if (to) *to = new braid_error{f.status, f.error};
}

// Runs f, which throws a Failure, or what the library's own memory throws; nothing passes on.
template <class F>
braid_status guarded(braid_error** error, const F& f) noexcept {
  braid_status status = BRAID_INTERNAL;
  try {
    try {
      return f();
    } catch (const Failure& e) {
      status = e.status;
      tell(error, e);
    } catch (const std::bad_alloc&) {
      status = BRAID_NO_MEMORY;
      tell(error, {status, {"out of memory", "use a smaller model or fewer tokens"}});
    } catch (const std::exception& e) {
      tell(error, {status, {fmt::format("internal error: {}", e.what()), "report it"}});
    }
  } catch (...) {  // no memory for the message, or something unknown
  }
  return status;
}
// The same where a handle is made.
template <class T, class F>
T* made(braid_error** error, const F& f) noexcept {
  T* handle = nullptr;
  guarded(error, [&] {
    handle = f();
    return BRAID_OK;
  });
  return handle;
}

template <class T>
T& given(T* pointer, const char* name) {
  if (!pointer) throw null(name);
  return *pointer;
}
template <class T>
std::span<T> given(T* data, size_t count, const char* name) {
  if (!data && count > 0) throw null(name);
  return {data, count};
}

template <class T>
T value(Result<T> r) {
  if (!r) throw failed(r.error());
  return *std::move(r);
}
void done(const Status& s) {
  if (!s) throw failed(s.error());
}

// A later version takes the sizes of earlier ones, too.
template <class T>
T options_of(const T* given_options, const char* name) {
  if (!given_options) return {};
  if (given_options->size != sizeof(T))
    throw invalid(fmt::format("{}.size is {}", name, given_options->size),
                  fmt::format("set it to sizeof({}), {} in this version", name, sizeof(T)));
  return *given_options;
}

// A context belongs to one call at a time.
class Use {
 public:
  explicit Use(braid_context::Shared& c) : context_(c) {
    if (c.busy.test_and_set(std::memory_order_acquire))
      throw invalid("the context is in use by another thread", "give each thread a context of its own");
  }
  ~Use() { context_.busy.clear(std::memory_order_release); }
  Use(const Use&) = delete;
  Use& operator=(const Use&) = delete;

 private:
  braid_context::Shared& context_;
};

template <class T>
braid_status put(std::span<const T> from, T* to, size_t capacity, size_t* count) {
  given(count, "count") = from.size();
  if (from.size() > capacity) return BRAID_TOO_SMALL;
  if (!from.empty()) std::ranges::copy(from, given(to, from.size(), "the buffer").begin());
  return BRAID_OK;
}

int32_t vocabulary(const TextModel& m) { return static_cast<int32_t>(m.model->config().vocab_size); }

void check_tokens(std::span<const int32_t> tokens, int32_t vocabulary) {
  for (size_t i = 0; i < tokens.size(); ++i)
    if (tokens[i] < 0 || tokens[i] >= vocabulary)
      throw invalid(fmt::format("token {} is {}", i, tokens[i]),
                    fmt::format("give ids from 0 to {}", vocabulary - 1));
}

const Tokenizer& tokenizer_of(const braid_model* model) {
  const TextModel& m = *given(model, "model").text;
  if (!m.tokenizer) throw invalid("the model has no tokenizer", "give token ids");
  return *m.tokenizer;
}

ContextOptions context_options(const braid_context_options& o) {
  if (o.threads < 0 || o.threads > 1024)
    throw invalid(fmt::format("threads is {}", o.threads), "give a number from 0 to 1024");
  const std::optional<Activations> a = activations_from_name(o.activations ? o.activations : "auto");
  if (!a)
    throw invalid(fmt::format("activations is '{}'", o.activations), "use \"auto\", \"f32\" or \"bf16\"");
  const Result<KernelChoice> kernels = parse_kernel_choice(o.isa ? o.isa : "", o.kernels ? o.kernels : "");
  if (!kernels) throw Failure{BRAID_INVALID, kernels.error()};
  return {.threads = o.threads, .activations = *a, .kernels = *kernels};
}

void usable(const braid_session& s) {
  if (s.broken)
    throw invalid("the session ran out of memory in the middle of a pass",
                  "restore a state, or make another session");
}

void feed(braid_session& s, std::span<const int32_t> tokens) {
  const Use use(*s.context);
  usable(s);
  if (tokens.empty()) throw invalid("count is 0", "give at least one token");
  check_tokens(tokens, vocabulary(*s.text));
  if (static_cast<int64_t>(tokens.size()) > std::numeric_limits<int32_t>::max() - s.session.state().position)
    throw invalid(fmt::format("{} tokens behind {}", tokens.size(), s.session.state().position),
                  "a sequence has at most 2^31 - 1 tokens");
  s.logits.reserve(static_cast<size_t>(s.text->model->config().answers()));
  s.logits.clear();
  s.broken = true;  // until the pass has ended
  const std::span<const float> logits = s.session.feed(tokens);
  s.logits.assign(logits.begin(), logits.end());
  s.broken = false;
}

SamplerOptions sampler_options(const braid_sampling* given_options) {
  const auto o = options_of(given_options, "braid_sampling");
  SamplerOptions s{.temperature = o.temperature, .last_n = 64, .seed = o.seed};
  s.top_k = o.top_k, s.min_p = o.min_p;
  if (o.top_p != 0) s.top_p = o.top_p;
  if (o.repetition_penalty != 0) s.repetition_penalty = o.repetition_penalty;
  if (o.repeat_last_n != 0) s.last_n = o.repeat_last_n;
  if (const std::vector<Problem> problems = validate(s); !problems.empty())
    throw Failure{BRAID_INVALID, wrong_options(problems)};
  return s;
}

Shape shape_of(const braid_tensor& t, const std::string& name) {
  if (t.rank < 1 || t.rank > BRAID_MAX_RANK)
    throw invalid(fmt::format("{}: rank is {}", name, t.rank),
                  fmt::format("give 1 to {}", static_cast<int>(BRAID_MAX_RANK)));
  Shape shape;
  double count = 1;
  for (int32_t i = 0; i < t.rank; ++i) {
    if (t.shape[i] < 1)
      throw invalid(fmt::format("{}: shape[{}] is {}", name, i, t.shape[i]), "give 1 or more");
    count *= static_cast<double>(t.shape[i]);
    shape.push(t.shape[i]);
  }
  if (count > 1e15) throw invalid(fmt::format("{}: shape {} is too large", name, shape.text()), "use less");
  return shape;
}

std::vector<NamedTensor> inputs_of(std::span<const braid_tensor> tensors) {
  std::vector<NamedTensor> all;
  for (size_t i = 0; i < tensors.size(); ++i) {
    const braid_tensor& t = tensors[i];
    const std::string name = &given(t.name, fmt::format("inputs[{}].name", i).c_str());
    if (t.dtype != BRAID_F32 && t.dtype != BRAID_I32)
      throw invalid(fmt::format("{}: dtype is {}", name, static_cast<int>(t.dtype)),
                    "use BRAID_F32 or BRAID_I32");
    if (!t.data) throw null(fmt::format("{}: data", name).c_str());
    all.push_back({name, {t.data, t.dtype == BRAID_F32 ? DType::kF32 : DType::kI32, shape_of(t, name)}});
  }
  return all;
}

// Names and shapes of the results into the caller's tensors; whether all of them have memory, which the op
// then uses.
bool place_outputs(OpCall& call, std::span<braid_tensor> outputs) {
  const std::vector<NamedTensor> results = call.results();
  std::vector<std::string> names;
  for (const NamedTensor& r : results) names.push_back(r.name);
  std::vector<const Shape*> shapes;
  for (size_t i = 0; i < outputs.size(); ++i) {  // all are right before one is changed
    const braid_tensor& o = outputs[i];
    const std::string name = &given(o.name, fmt::format("outputs[{}].name", i).c_str());
    const auto at = std::ranges::find(results, name, &NamedTensor::name);
    if (at == results.end())
      throw invalid(fmt::format("'{}' is not a result of this call", name),
                    fmt::format("its results: {}", fmt::join(names, ", ")));
    for (size_t j = 0; j < i; ++j)
      if (name == outputs[j].name) throw invalid(fmt::format("result '{}' is named twice", name), "keep one");
    if (o.data && (o.dtype != BRAID_F32 || shape_of(o, name) != at->view.shape))
      throw invalid(fmt::format("{}: another shape or dtype than the result has", name),
                    fmt::format("give BRAID_F32 {}", at->view.shape.text()));
    if (at->view.shape.rank() > BRAID_MAX_RANK) throw std::logic_error("an op with results of a larger rank");
    shapes.push_back(&at->view.shape);
  }
  bool all = !outputs.empty();
  for (size_t i = 0; i < outputs.size(); ++i) {
    braid_tensor& o = outputs[i];
    o.dtype = BRAID_F32, o.rank = shapes[i]->rank();
    for (int d = 0; d < o.rank; ++d) o.shape[d] = (*shapes[i])[d];
    all &= o.data != nullptr;
  }
  for (const braid_tensor& o : outputs)
    if (all) call.place(o.name, static_cast<float*>(o.data));
  return all;
}

}  // namespace
}  // namespace braid

using namespace braid;

const char* braid_version(void) { return BRAID_VERSION; }

braid_status braid_error_status(const braid_error* error) { return error ? error->status : BRAID_OK; }
const char* braid_error_message(const braid_error* error) { return error ? error->error.what.c_str() : ""; }
const char* braid_error_fix(const braid_error* error) { return error ? error->error.fix.c_str() : ""; }
void braid_error_free(braid_error* error) { delete error; }

braid_context* braid_context_new(const braid_context_options* options, braid_error** error) {
  return made<braid_context>(error, [&] {
    const ContextOptions o = context_options(options_of(options, "braid_context_options"));
    return new braid_context{std::make_shared<braid_context::Shared>(o)};
  });
}
void braid_context_free(braid_context* context) { delete context; }

braid_model* braid_model_load(const char* folder, const braid_load_options* options, braid_context* context,
                              braid_error** error) {
  return made<braid_model>(error, [&] {
    const std::string dir = &given(folder, "folder");
    const auto o = options_of(options, "braid_load_options");
    const Use use(*given(context, "context").shared);
    std::optional<WeightFormat> format;
    if (o.weights) {
      format = weight_format_from_name(o.weights);
      if (!format)
        throw invalid(fmt::format("weights is '{}'", o.weights), "use \"f32\", \"bf16\", \"q8\" or \"q4\"");
    }
    return new braid_model{std::make_shared<const TextModel>(
        value(TextModel::load(dir, format, context->shared->context.par())))};
  });
}
void braid_model_free(braid_model* model) { delete model; }

int32_t braid_model_vocabulary(const braid_model* model) { return model ? vocabulary(*model->text) : 0; }
int32_t braid_model_answers(const braid_model* model) {
  return model ? static_cast<int32_t>(model->text->model->config().answers()) : 0;
}
int32_t braid_model_has_tokenizer(const braid_model* model) { return model && model->text->tokenizer; }

braid_status braid_model_end_tokens(const braid_model* model, int32_t* tokens, size_t capacity, size_t* count,
                                    braid_error** error) {
  return guarded(error, [&] {
    return put<int32_t>(given(model, "model").text->generation.eos, tokens, capacity, count);
  });
}

braid_status braid_tokenize(const braid_model* model, const char* text, size_t length, int32_t special,
                            int32_t* tokens, size_t capacity, size_t* count, braid_error** error) {
  return guarded(error, [&] {
    const Tokenizer& t = tokenizer_of(model);
    const std::span<const char> chars = given(text, length, "text");
    const std::vector<int32_t> ids = value(
        t.encode({chars.data(), chars.size()}, {.add_special = special != 0, .parse_special = special != 0}));
    return put<int32_t>(ids, tokens, capacity, count);
  });
}

braid_status braid_detokenize(const braid_model* model, const int32_t* tokens, size_t token_count,
                              int32_t special, char* text, size_t capacity, size_t* count,
                              braid_error** error) {
  return guarded(error, [&] {
    const Tokenizer& t = tokenizer_of(model);
    const std::span<const int32_t> ids = given(tokens, token_count, "tokens");
    check_tokens(ids, vocabulary(*model->text));
    const std::string s = value(t.decode(ids, {.skip_special = special == 0}));
    return put<char>(s, text, capacity, count);
  });
}

braid_session* braid_session_new(const braid_model* model, braid_context* context, braid_error** error) {
  return made<braid_session>(error, [&] {
    const auto& text = given(model, "model").text;
    const auto& shared = given(context, "context").shared;
    return new braid_session{text, shared, Session(*text->model, shared->context), {}};
  });
}
void braid_session_free(braid_session* session) { delete session; }

braid_status braid_prefill(braid_session* session, const int32_t* tokens, size_t count, braid_error** error) {
  return guarded(error, [&] {
    braid_session& s = given(session, "session");
    feed(s, given(tokens, count, "tokens"));
    return BRAID_OK;
  });
}

braid_status braid_step(braid_session* session, int32_t token, braid_error** error) {
  return braid_prefill(session, &token, 1, error);
}

braid_status braid_logits(const braid_session* session, const float** logits, size_t* count,
                          braid_error** error) {
  return guarded(error, [&] {
    const braid_session& s = given(session, "session");
    given(logits, "logits"), given(count, "count");
    *logits = s.logits.empty() ? nullptr : s.logits.data(), *count = s.logits.size();
    return BRAID_OK;
  });
}

int64_t braid_position(const braid_session* session) {
  return session ? session->session.state().position : -1;
}

braid_status braid_set_undo(braid_session* session, int64_t tokens, braid_error** error) {
  return guarded(error, [&] {
    braid_session& s = given(session, "session");
    const Use use(*s.context);
    usable(s);
    if (tokens < 0) throw invalid(fmt::format("tokens is {}", tokens), "give 0 or more");
    s.session.set_undo(tokens);
    return BRAID_OK;
  });
}

braid_status braid_rollback(braid_session* session, int64_t position, braid_error** error) {
  return guarded(error, [&] {
    braid_session& s = given(session, "session");
    const Use use(*s.context);
    usable(s);
    if (position == s.session.state().position) return BRAID_OK;
    if (position < 0 || position > s.session.state().position)
      throw invalid(fmt::format("position is {}", position),
                    fmt::format("give 0 to {}", s.session.state().position));
    const Status status = s.session.rollback(position);
    if (!status) throw Failure{BRAID_INVALID, status.error()};
    s.logits.clear();
    return BRAID_OK;
  });
}

braid_status braid_sample(const float* logits, size_t count, const braid_sampling* options,
                          const int32_t* history, size_t history_count, int32_t* token, braid_error** error) {
  return guarded(error, [&] {
    const std::span<const float> all = given(logits, count, "logits");
    if (count == 0 || count > static_cast<size_t>(std::numeric_limits<int32_t>::max()))
      throw invalid(fmt::format("count is {}", count), "give the logits of a token");
    const std::span<const int32_t> before = given(history, history_count, "history");
    given(token, "token");
    SamplerOptions o{.temperature = 0};
    if (options) o = sampler_options(options);
    const Result<int32_t> next = Sampler(o)(all, before, before.size());
    if (!next) throw Failure{BRAID_FAILED, next.error()};
    *token = *next;
    return BRAID_OK;
  });
}

braid_state* braid_state_copy(const braid_session* session, braid_error** error) {
  return made<braid_state>(error, [&] {
    const braid_session& s = given(session, "session");
    const Use use(*s.context);
    usable(s);
    return new braid_state{s.text, s.session.state()};
  });
}

braid_status braid_state_restore(braid_session* session, const braid_state* state, braid_error** error) {
  return guarded(error, [&] {
    braid_session& s = given(session, "session");
    const braid_state& from = given(state, "state");
    const Use use(*s.context);
    if (from.text != s.text)
      throw invalid("the state is of another model", "restore it in a session of the model that it is from");
    s.session.set_state(from.state);
    s.logits.clear();
    s.broken = false;
    return BRAID_OK;
  });
}

braid_status braid_state_save(const braid_state* state, const char* path, braid_error** error) {
  return guarded(error, [&] {
    const braid_state& s = given(state, "state");
    done(save_state(s.state, *s.text->model, &given(path, "path")));
    return BRAID_OK;
  });
}

braid_state* braid_state_load(const braid_model* model, const char* path, braid_error** error) {
  return made<braid_state>(error, [&] {
    const auto& text = given(model, "model").text;
    return new braid_state{text, value(load_state(*text->model, &given(path, "path")))};
  });
}

void braid_state_free(braid_state* state) { delete state; }
int64_t braid_state_position(const braid_state* state) { return state ? state->state.position : -1; }
size_t braid_state_bytes(const braid_state* state) { return state ? state->state.bytes() : 0; }

size_t braid_op_count(void) { return all_callable_ops().size(); }

const char* braid_op_name(size_t index) {
  return index < all_callable_ops().size() ? all_callable_ops()[index]->name.c_str() : nullptr;
}

const char* braid_op_help(const char* op) {
  const char* text = nullptr;
  guarded(nullptr, [&] {
    static const std::map<std::string, std::string, std::less<>> texts = [] {
      std::map<std::string, std::string, std::less<>> all;
      for (const CallableOp* o : all_callable_ops()) all[o->name] = op_help(*o);
      return all;
    }();
    if (const auto at = op ? texts.find(std::string_view(op)) : texts.end(); at != texts.end())
      text = at->second.c_str();
    return BRAID_OK;
  });
  return text;
}

braid_status braid_op_run(braid_context* context, const char* op, const braid_op_options* options,
                          const braid_tensor* inputs, size_t input_count, braid_tensor* outputs,
                          size_t output_count, braid_error** error) {
  return guarded(error, [&] {
    const Use use(*given(context, "context").shared);
    const CallableOp* const entry = find_callable_op(&given(op, "op"));
    if (!entry) throw Failure{BRAID_INVALID, no_such_op(op)};
    const auto o = options_of(options, "braid_op_options");
    OpOptions call_options{.form = o.form ? o.form : "", .backward = o.backward != 0};
    for (const char* setting : given(o.settings, o.setting_count, "settings"))
      call_options.settings.emplace_back(&given(setting, "a setting"));
    Result<OpCall> call = OpCall::make(*entry, call_options);
    if (!call) throw Failure{BRAID_INVALID, call.error()};
    const std::vector<NamedTensor> tensors = inputs_of(given(inputs, input_count, "inputs"));
    if (Status s = call->read(tensors, "these inputs"); !s) throw Failure{BRAID_INVALID, s.error()};
    if (place_outputs(*call, given(outputs, output_count, "outputs")))
      call->run(context->shared->context.par());
    return BRAID_OK;
  });
}
