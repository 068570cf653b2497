// The C surface: that it does what the C++ one does, and that no mistake of a caller's ends the program. Run
// in the dev build, where AddressSanitizer sees what a mistake touches.
#include <braid/braid.h>
#include <braid/version.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <thread>

#include "infer/session.h"
#include "io/file.h"
#include "io/json.h"
#include "kernels/fast_weight/fast_weight.h"
#include "model/config_json.h"
#include "model/model.h"
#include "model/presets.h"
#include "ops/op.h"
#include "support/test_dir.h"

namespace braid {
namespace {

// Frees what it holds; an error that a call leaves has a message.
template <class T, void (*kFree)(T*)>
struct Free {
  void operator()(T* p) const { kFree(p); }
};
using ContextPtr = std::unique_ptr<braid_context, Free<braid_context, braid_context_free>>;
using ModelPtr = std::unique_ptr<braid_model, Free<braid_model, braid_model_free>>;
using SessionPtr = std::unique_ptr<braid_session, Free<braid_session, braid_session_free>>;
using StatePtr = std::unique_ptr<braid_state, Free<braid_state, braid_state_free>>;

struct Caught {
  braid_error* error = nullptr;
  ~Caught() { braid_error_free(error); }
  braid_error** out() {
    braid_error_free(error);
    error = nullptr;
    return &error;
  }
};

std::vector<int32_t> some_tokens(size_t n) {
  std::vector<int32_t> t(n);
  for (size_t i = 0; i < n; ++i) t[i] = static_cast<int32_t>((i * i + 3 * i) % 256);
  return t;
}

class CApi : public testing::Test {
 protected:
  CApi() {
    const std::unique_ptr<Model> model =
        Model::create(*parse_config(*preset_config("gdn-h1", "tiny", 256), ""));
    model->init(1);
    EXPECT_TRUE(model->save(dir_ / "m"));
    const braid_context_options o{
        .size = sizeof o, .threads = 1, .activations = "f32", .isa = nullptr, .kernels = nullptr};
    context_.reset(braid_context_new(&o, caught_.out()));
    EXPECT_TRUE(context_) << message();
    model_.reset(braid_model_load((dir_ / "m").c_str(), nullptr, context_.get(), caught_.out()));
    EXPECT_TRUE(model_) << message();
  }
  SessionPtr session() {
    SessionPtr s(braid_session_new(model_.get(), context_.get(), caught_.out()));
    EXPECT_TRUE(s) << message();
    return s;
  }
  std::string message() const { return braid_error_message(caught_.error); }
  // The call failed with this status, and its error says something about `word`.
  void expect(braid_status status, braid_status want, const std::string& word) {
    EXPECT_EQ(status, want) << message();
    expect_error(want, word);
  }
  void expect_error(braid_status want, const std::string& word) {
    ASSERT_NE(caught_.error, nullptr) << word;
    EXPECT_EQ(braid_error_status(caught_.error), want) << message();
    EXPECT_NE(message().find(word), std::string::npos) << message() << " has nothing of " << word;
    EXPECT_NE(std::string(braid_error_fix(caught_.error)), "") << message();
    EXPECT_EQ(message().find("internal error"), std::string::npos) << message();
  }
  std::vector<float> logits(const braid_session* s) {
    const float* p = nullptr;
    size_t n = 0;
    EXPECT_EQ(braid_logits(s, &p, &n, caught_.out()), BRAID_OK);
    return {p, p + n};
  }

  const TestDir dir_;
  Caught caught_;
  ContextPtr context_;
  ModelPtr model_;
};

TEST_F(CApi, SessionsComputeWhatTheLibraryDoes) {
  EXPECT_STREQ(braid_version(), BRAID_VERSION);
  EXPECT_EQ(braid_model_vocabulary(model_.get()), 256);
  EXPECT_EQ(braid_model_answers(model_.get()), 256);
  EXPECT_EQ(braid_model_has_tokenizer(model_.get()), 1);
  const std::vector<int32_t> tokens = some_tokens(40);
  const std::unique_ptr<Model> model = *Model::load_stored(dir_ / "m");
  Context context({.threads = 1});
  Session want(*model, context);
  const SessionPtr s = session();
  EXPECT_TRUE(logits(s.get()).empty());
  EXPECT_EQ(braid_position(s.get()), 0);
  ASSERT_EQ(braid_prefill(s.get(), tokens.data(), 30, caught_.out()), BRAID_OK) << message();
  std::span<const float> row = want.feed(std::span(tokens).first(30));
  EXPECT_EQ(logits(s.get()), std::vector<float>(row.begin(), row.end()));
  for (size_t i = 30; i < 40; ++i) {
    ASSERT_EQ(braid_step(s.get(), tokens[i], caught_.out()), BRAID_OK) << message();
    row = want.feed(std::span(tokens).subspan(i, 1));
    EXPECT_EQ(logits(s.get()), std::vector<float>(row.begin(), row.end())) << i;
  }
  EXPECT_EQ(braid_position(s.get()), 40);
}

TEST_F(CApi, TextAndIdsAndBuffers) {
  const std::string text = "h\xc3\xa9llo";
  size_t n = 0;
  EXPECT_EQ(braid_tokenize(model_.get(), text.data(), text.size(), 1, nullptr, 0, &n, caught_.out()),
            BRAID_TOO_SMALL);
  EXPECT_EQ(caught_.error, nullptr);
  ASSERT_EQ(n, 6u);
  std::vector<int32_t> ids(n, -1);
  EXPECT_EQ(braid_tokenize(model_.get(), text.data(), text.size(), 1, ids.data(), 5, &n, caught_.out()),
            BRAID_TOO_SMALL);
  EXPECT_EQ(ids[0], -1);  // nothing is written
  EXPECT_EQ(braid_tokenize(model_.get(), text.data(), text.size(), 1, ids.data(), n, &n, caught_.out()),
            BRAID_OK);
  EXPECT_EQ(ids[1], 0xc3);
  char back[16];
  EXPECT_EQ(braid_detokenize(model_.get(), ids.data(), ids.size(), 1, back, sizeof back, &n, caught_.out()),
            BRAID_OK);
  EXPECT_EQ(std::string(back, n), text);
  EXPECT_EQ(braid_tokenize(model_.get(), nullptr, 0, 1, nullptr, 0, &n, caught_.out()), BRAID_OK);
  EXPECT_EQ(n, 0u);
  EXPECT_EQ(braid_model_end_tokens(model_.get(), nullptr, 0, &n, caught_.out()), BRAID_OK);
}

TEST_F(CApi, SamplesAndStates) {
  const std::vector<int32_t> tokens = some_tokens(20);
  const SessionPtr s = session();
  ASSERT_EQ(braid_prefill(s.get(), tokens.data(), tokens.size(), caught_.out()), BRAID_OK);
  const std::vector<float> row = logits(s.get());
  int32_t token = -1;
  ASSERT_EQ(braid_sample(row.data(), row.size(), nullptr, nullptr, 0, &token, caught_.out()), BRAID_OK);
  EXPECT_EQ(token, std::ranges::max_element(row) - row.begin());
  braid_sampling o{};
  o.size = sizeof o, o.temperature = 1.5f, o.top_k = 40, o.seed = 7, o.repetition_penalty = 1.1f;
  int32_t drawn[2];
  for (int32_t& d : drawn)
    ASSERT_EQ(braid_sample(row.data(), row.size(), &o, tokens.data(), tokens.size(), &d, caught_.out()),
              BRAID_OK);
  EXPECT_EQ(drawn[0], drawn[1]);

  const StatePtr state(braid_state_copy(s.get(), caught_.out()));
  ASSERT_TRUE(state);
  EXPECT_EQ(braid_state_position(state.get()), 20);
  EXPECT_GT(braid_state_bytes(state.get()), 0u);
  ASSERT_EQ(braid_step(s.get(), token, caught_.out()), BRAID_OK);
  const std::vector<float> next = logits(s.get());
  const std::string file = dir_ / "state";
  ASSERT_EQ(braid_state_save(state.get(), file.c_str(), caught_.out()), BRAID_OK) << message();
  const StatePtr loaded(braid_state_load(model_.get(), file.c_str(), caught_.out()));
  ASSERT_TRUE(loaded) << message();
  for (const braid_state* from : {state.get(), loaded.get()}) {
    const SessionPtr other = session();
    ASSERT_EQ(braid_state_restore(other.get(), from, caught_.out()), BRAID_OK);
    EXPECT_TRUE(logits(other.get()).empty());
    ASSERT_EQ(braid_step(other.get(), token, caught_.out()), BRAID_OK);
    EXPECT_EQ(logits(other.get()), next);
  }
  ASSERT_EQ(braid_set_undo(s.get(), 4, caught_.out()), BRAID_OK);
  for (int i = 0; i < 3; ++i) ASSERT_EQ(braid_step(s.get(), i, caught_.out()), BRAID_OK);
  ASSERT_EQ(braid_rollback(s.get(), 21, caught_.out()), BRAID_OK) << message();
  EXPECT_EQ(braid_position(s.get()), 21);
}

// What a session holds it keeps alive.
TEST_F(CApi, HandlesAreFreedInAnyOrder) {
  SessionPtr s = session();
  const StatePtr state(braid_state_copy(s.get(), caught_.out()));
  model_.reset(), context_.reset();
  ASSERT_EQ(braid_step(s.get(), 1, caught_.out()), BRAID_OK);
  s.reset();
  EXPECT_EQ(braid_state_save(state.get(), (dir_ / "s").c_str(), caught_.out()), BRAID_OK);
  braid_context_free(nullptr), braid_model_free(nullptr), braid_session_free(nullptr);
  braid_state_free(nullptr), braid_error_free(nullptr);
}

TEST_F(CApi, WrongContextsAndModels) {
  const auto context = [&](int32_t threads, const char* activations, const char* isa, const char* kernels) {
    const braid_context_options o{sizeof o, threads, activations, isa, kernels};
    return ContextPtr(braid_context_new(&o, caught_.out()));
  };
  EXPECT_FALSE(context(-1, nullptr, nullptr, nullptr));
  expect_error(BRAID_INVALID, "threads is -1");
  EXPECT_FALSE(context(1, "f16", nullptr, nullptr));
  expect_error(BRAID_INVALID, "f16");
  EXPECT_FALSE(context(1, nullptr, "avx3", nullptr));
  expect_error(BRAID_INVALID, "avx3");
  EXPECT_FALSE(context(1, nullptr, nullptr, "rmsnorm=fast"));
  expect_error(BRAID_INVALID, "'fast'");
  braid_context_options none{};
  EXPECT_FALSE(ContextPtr(braid_context_new(&none, caught_.out())));
  expect_error(BRAID_INVALID, "size is 0");
  EXPECT_TRUE(context(1, "auto", "base", "rmsnorm=ref"));

  const auto load = [&](const char* dir, const char* weights, braid_context* c) {
    const braid_load_options o{.size = sizeof o, .weights = weights};
    return ModelPtr(braid_model_load(dir, &o, c, caught_.out()));
  };
  EXPECT_FALSE(load(nullptr, nullptr, context_.get()));
  expect_error(BRAID_INVALID, "folder is NULL");
  EXPECT_FALSE(load("m", nullptr, nullptr));
  expect_error(BRAID_INVALID, "context is NULL");
  EXPECT_FALSE(load((dir_ / "nothing").c_str(), nullptr, context_.get()));
  EXPECT_EQ(braid_error_status(caught_.error), BRAID_FAILED);
  EXPECT_FALSE(load((dir_ / "m").c_str(), "q5", context_.get()));
  expect_error(BRAID_INVALID, "q5");
  ASSERT_TRUE(write_atomic(dir_ / "m/config.json", "{"));
  EXPECT_FALSE(load((dir_ / "m").c_str(), nullptr, context_.get()));
  EXPECT_EQ(braid_error_status(caught_.error), BRAID_FAILED);
  EXPECT_FALSE(braid_model_load(nullptr, nullptr, nullptr, nullptr));  // who does not ask is not told
}

TEST_F(CApi, WrongSessionsTokensAndStates) {
  EXPECT_FALSE(SessionPtr(braid_session_new(nullptr, context_.get(), caught_.out())));
  expect_error(BRAID_INVALID, "model is NULL");
  EXPECT_FALSE(SessionPtr(braid_session_new(model_.get(), nullptr, caught_.out())));
  expect_error(BRAID_INVALID, "context is NULL");
  const SessionPtr s = session();
  const std::vector<int32_t> tokens = some_tokens(10);
  ASSERT_EQ(braid_prefill(s.get(), tokens.data(), 10, caught_.out()), BRAID_OK);
  const std::vector<float> row = logits(s.get());
  expect(braid_prefill(nullptr, tokens.data(), 10, caught_.out()), BRAID_INVALID, "session is NULL");
  expect(braid_prefill(s.get(), nullptr, 10, caught_.out()), BRAID_INVALID, "tokens is NULL");
  expect(braid_prefill(s.get(), tokens.data(), 0, caught_.out()), BRAID_INVALID, "count is 0");
  for (const int32_t bad : {-1, 256, INT32_MIN, INT32_MAX}) {
    expect(braid_step(s.get(), bad, caught_.out()), BRAID_INVALID, std::to_string(bad));
    const int32_t mixed[] = {1, 2, bad};
    expect(braid_prefill(s.get(), mixed, 3, caught_.out()), BRAID_INVALID, "token 2");
  }
  EXPECT_EQ(braid_position(s.get()), 10);  // nothing has changed
  EXPECT_EQ(logits(s.get()), row);
  size_t n = 0;
  const float* p = nullptr;
  expect(braid_logits(nullptr, &p, &n, caught_.out()), BRAID_INVALID, "session");
  expect(braid_logits(s.get(), nullptr, &n, caught_.out()), BRAID_INVALID, "logits");
  expect(braid_logits(s.get(), &p, nullptr, caught_.out()), BRAID_INVALID, "count");
  expect(braid_set_undo(s.get(), -1, caught_.out()), BRAID_INVALID, "-1");
  for (const int64_t to : {int64_t{-1}, int64_t{11}, INT64_MAX, INT64_MIN})
    expect(braid_rollback(s.get(), to, caught_.out()), BRAID_INVALID, std::to_string(to));
  EXPECT_EQ(braid_rollback(s.get(), 3, caught_.out()), BRAID_INVALID);  // nothing was recorded
  EXPECT_EQ(braid_position(s.get()), 10);

  EXPECT_FALSE(StatePtr(braid_state_copy(nullptr, caught_.out())));
  expect_error(BRAID_INVALID, "session");
  const StatePtr state(braid_state_copy(s.get(), caught_.out()));
  expect(braid_state_restore(s.get(), nullptr, caught_.out()), BRAID_INVALID, "state");
  expect(braid_state_restore(nullptr, state.get(), caught_.out()), BRAID_INVALID, "session");
  const ModelPtr other(braid_model_load((dir_ / "m").c_str(), nullptr, context_.get(), caught_.out()));
  const SessionPtr elsewhere(braid_session_new(other.get(), context_.get(), caught_.out()));
  expect(braid_state_restore(elsewhere.get(), state.get(), caught_.out()), BRAID_INVALID, "another model");
  expect(braid_state_save(state.get(), nullptr, caught_.out()), BRAID_INVALID, "path");
  EXPECT_EQ(braid_state_save(state.get(), (dir_ / "no/such/folder").c_str(), caught_.out()), BRAID_FAILED);
  EXPECT_FALSE(StatePtr(braid_state_load(model_.get(), (dir_ / "none").c_str(), caught_.out())));
  EXPECT_EQ(braid_error_status(caught_.error), BRAID_FAILED);
  ASSERT_TRUE(write_atomic(dir_ / "junk", "junk"));
  EXPECT_FALSE(StatePtr(braid_state_load(model_.get(), (dir_ / "junk").c_str(), caught_.out())));
  EXPECT_EQ(braid_error_status(caught_.error), BRAID_FAILED);

  EXPECT_EQ(braid_position(nullptr), -1);
  EXPECT_EQ(braid_state_position(nullptr), -1);
  EXPECT_EQ(braid_state_bytes(nullptr), 0u);
  EXPECT_EQ(braid_model_vocabulary(nullptr), 0);
  EXPECT_EQ(braid_model_answers(nullptr), 0);
  EXPECT_EQ(braid_model_has_tokenizer(nullptr), 0);
  EXPECT_STREQ(braid_error_message(nullptr), "");
  EXPECT_STREQ(braid_error_fix(nullptr), "");
  EXPECT_EQ(braid_error_status(nullptr), BRAID_OK);
}

TEST_F(CApi, WrongTextsAndSamples) {
  size_t n = 0;
  int32_t id = 0;
  expect(braid_tokenize(nullptr, "a", 1, 1, &id, 1, &n, caught_.out()), BRAID_INVALID, "model");
  expect(braid_tokenize(model_.get(), nullptr, 1, 1, &id, 1, &n, caught_.out()), BRAID_INVALID, "text");
  expect(braid_tokenize(model_.get(), "a", 1, 1, &id, 1, nullptr, caught_.out()), BRAID_INVALID, "count");
  expect(braid_tokenize(model_.get(), "a", 1, 1, nullptr, 1, &n, caught_.out()), BRAID_INVALID, "buffer");
  const int32_t bad[] = {1, 300};
  char text[4];
  expect(braid_detokenize(model_.get(), bad, 2, 1, text, 4, &n, caught_.out()), BRAID_INVALID, "300");
  expect(braid_detokenize(model_.get(), nullptr, 2, 1, text, 4, &n, caught_.out()), BRAID_INVALID, "tokens");
  expect(braid_model_end_tokens(nullptr, &id, 1, &n, caught_.out()), BRAID_INVALID, "model");

  const float row[] = {0, 1, 2}, nothing[] = {NAN, -INFINITY};
  int32_t token = 0;
  expect(braid_sample(nullptr, 3, nullptr, nullptr, 0, &token, caught_.out()), BRAID_INVALID, "logits");
  expect(braid_sample(row, 0, nullptr, nullptr, 0, &token, caught_.out()), BRAID_INVALID, "count is 0");
  expect(braid_sample(row, 3, nullptr, nullptr, 1, &token, caught_.out()), BRAID_INVALID, "history");
  expect(braid_sample(row, 3, nullptr, nullptr, 0, nullptr, caught_.out()), BRAID_INVALID, "token");
  EXPECT_EQ(braid_sample(nothing, 2, nullptr, nullptr, 0, &token, caught_.out()), BRAID_FAILED);
  braid_sampling o{};
  expect(braid_sample(row, 3, &o, nullptr, 0, &token, caught_.out()), BRAID_INVALID, "size");
  o.size = sizeof o, o.temperature = -1;
  EXPECT_EQ(braid_sample(row, 3, &o, nullptr, 0, &token, caught_.out()), BRAID_INVALID);
  o.temperature = NAN;
  EXPECT_EQ(braid_sample(row, 3, &o, nullptr, 0, &token, caught_.out()), BRAID_INVALID);
  o.temperature = 1, o.repetition_penalty = 2;
  const int32_t history[] = {-5, 1000, INT32_MAX};  // of other vocabularies: without effect
  EXPECT_EQ(braid_sample(row, 3, &o, history, 3, &token, caught_.out()), BRAID_OK) << message();
}

// A context that is in use by another thread is an error, not a wait or an end.
TEST_F(CApi, AContextServesOneThread) {
  const std::vector<int32_t> tokens = some_tokens(400);
  const SessionPtr a = session(), b = session();
  std::atomic<int> refused = 0, done = 0;
  const auto work = [&](braid_session* s) {
    for (int i = 0; i < 30; ++i) {
      braid_error* e = nullptr;
      const braid_status status = braid_prefill(s, tokens.data(), tokens.size(), &e);
      ++(status == BRAID_OK ? done : refused);
      if (status != BRAID_OK) {
        EXPECT_EQ(status, BRAID_INVALID);
        EXPECT_NE(std::string(braid_error_message(e)).find("in use"), std::string::npos);
      }
      braid_error_free(e);
    }
  };
  std::thread other(work, b.get());
  work(a.get());
  other.join();
  EXPECT_EQ(refused + done, 60);
  EXPECT_GT(done, 0);
  EXPECT_EQ(braid_step(a.get(), 1, caught_.out()), BRAID_OK);
}

struct FastWeightCall {
  static constexpr int64_t B = 1, T = 7, H = 2, D = 4;
  std::vector<float> q = std::vector<float>(B * T * H * D), k = q, v = q, g = std::vector<float>(B * T * H),
                     beta = g, dout = q;
  std::vector<braid_tensor> inputs;
  FastWeightCall() {
    uint32_t x = 1;
    for (auto* m : {&q, &k, &v, &g, &beta, &dout})
      for (float& e : *m) x = x * 1664525 + 1013904223, e = static_cast<float>(x >> 8) / (1 << 24) - 0.5f;
    for (float& e : g) e = -std::fabs(e);
    inputs = {tensor("q", q, {B, T, H, D}), tensor("k", k, {B, T, H, D}), tensor("v", v, {B, T, H, D}),
              tensor("g", g, {B, T, H}), tensor("beta", beta, {B, T, H})};
  }
  static braid_tensor tensor(const char* name, std::vector<float>& data, std::vector<int64_t> shape) {
    braid_tensor t{.name = name,
                   .dtype = BRAID_F32,
                   .rank = static_cast<int32_t>(shape.size()),
                   .shape = {},
                   .data = data.data()};
    std::ranges::copy(shape, t.shape);
    return t;
  }
};

TEST_F(CApi, OpsRunByNameOnTheCallersMemory) {
  ASSERT_EQ(braid_op_count(), all_callable_ops().size());
  for (size_t i = 0; i < braid_op_count(); ++i) {
    ASSERT_NE(braid_op_name(i), nullptr);
    ASSERT_NE(braid_op_help(braid_op_name(i)), nullptr);
    EXPECT_NE(std::string(braid_op_help(braid_op_name(i))).find(braid_op_name(i)), std::string::npos);
  }
  FastWeightCall c;
  std::vector<braid_tensor> out(1);
  out[0].name = "o";
  const auto run = [&](const braid_op_options* o) {
    return braid_op_run(context_.get(), "fast_weight", o, c.inputs.data(), c.inputs.size(), out.data(),
                        out.size(), caught_.out());
  };
  ASSERT_EQ(run(nullptr), BRAID_OK) << message();  // what to allocate
  ASSERT_EQ(out[0].rank, 4);
  EXPECT_EQ(out[0].shape[1], c.T);
  EXPECT_EQ(out[0].data, nullptr);
  std::vector<float> got(c.q.size(), NAN), want(c.q.size(), NAN);
  out[0].data = got.data();
  ASSERT_EQ(run(nullptr), BRAID_OK) << message();
  const uint32_t offsets[] = {0, FastWeightCall::T};
  const size_t w = FastWeightCall::H * FastWeightCall::D, n = FastWeightCall::T;
  const FastWeightShape shape{2, 2, 4, 4, FastWeightDecay::kToken, FastWeightWrite::kDelta, 0.5f};
  std::vector<float> scratch(fast_weight_fwd_scratch(shape));
  fast_weight_fwd(shape,
                  {{c.q.data(), n, w},
                   {c.k.data(), n, w},
                   {c.v.data(), n, w},
                   {c.g.data(), n, 2},
                   {c.beta.data(), n, 2},
                   offsets,
                   {}},
                  {want.data(), n, w}, {}, {}, scratch);
  for (size_t i = 0; i < want.size(); ++i) EXPECT_NEAR(got[i], want[i], 1e-5) << i;

  // Backward, and one result of several.
  c.inputs.push_back(FastWeightCall::tensor("do", c.dout, {c.B, c.T, c.H, c.D}));
  const char* const settings[] = {"scale=0.5"};
  const braid_op_options o{
      .size = sizeof o, .form = "chunk", .settings = settings, .setting_count = 1, .backward = 1};
  out[0] = {};
  out[0].name = "dv";
  ASSERT_EQ(run(&o), BRAID_OK) << message();
  out[0].data = got.data();
  ASSERT_EQ(run(&o), BRAID_OK) << message();
  double sum = 0;
  for (const float x : got) sum += std::fabs(x);
  EXPECT_TRUE(std::isfinite(sum) && sum > 0);
}

TEST_F(CApi, WrongOps) {
  FastWeightCall c;
  braid_tensor out{};
  out.name = "o";
  std::vector<float> memory(c.q.size());
  const auto run = [&](const char* op, const braid_op_options* o = nullptr) {
    return braid_op_run(context_.get(), op, o, c.inputs.data(), c.inputs.size(), &out, 1, caught_.out());
  };
  expect(run(nullptr), BRAID_INVALID, "op is NULL");
  expect(run("fast_wait"), BRAID_INVALID, "fast_wait");
  expect(braid_op_run(nullptr, "fast_weight", nullptr, c.inputs.data(), 5, &out, 1, caught_.out()),
         BRAID_INVALID, "context");
  expect(braid_op_run(context_.get(), "fast_weight", nullptr, nullptr, 5, &out, 1, caught_.out()),
         BRAID_INVALID, "inputs");
  expect(braid_op_run(context_.get(), "fast_weight", nullptr, c.inputs.data(), 5, nullptr, 1, caught_.out()),
         BRAID_INVALID, "outputs");
  EXPECT_EQ(braid_op_run(context_.get(), "fast_weight", nullptr, nullptr, 0, nullptr, 0, caught_.out()),
            BRAID_INVALID);
  EXPECT_NE(message().find("q: is missing"), std::string::npos) << message();
  braid_op_options o{};
  expect(run("fast_weight", &o), BRAID_INVALID, "size");
  o.size = sizeof o, o.form = "fast";
  EXPECT_EQ(run("fast_weight", &o), BRAID_INVALID);
  EXPECT_NE(message().find("form: fast_weight has no form 'fast'"), std::string::npos) << message();
  EXPECT_EQ(message().find("--"), std::string::npos) << message();
  o.form = nullptr, o.setting_count = 2;
  expect(run("fast_weight", &o), BRAID_INVALID, "settings");
  const char* const settings[] = {"scale=x", nullptr};
  o.settings = settings;
  expect(run("fast_weight", &o), BRAID_INVALID, "a setting");
  o.setting_count = 1;
  EXPECT_EQ(run("fast_weight", &o), BRAID_INVALID);
  EXPECT_NE(message().find("scale"), std::string::npos) << message();

  const std::vector<braid_tensor> right = c.inputs;
  const auto wrong = [&](auto change, const std::string& word) {
    c.inputs = right;
    change();
    EXPECT_EQ(run("fast_weight"), BRAID_INVALID) << word;
    EXPECT_NE(message().find(word), std::string::npos) << message();
    c.inputs = right;
  };
  wrong([&] { c.inputs[0].name = nullptr; }, "inputs[0].name");
  wrong([&] { c.inputs[0].name = "Q"; }, "Q");
  wrong([&] { c.inputs[1].name = "q"; }, "q: is given twice");
  wrong([&] { c.inputs[0].data = nullptr; }, "q: data is NULL");
  wrong([&] { c.inputs[0].rank = 0; }, "rank is 0");
  wrong([&] { c.inputs[0].rank = 99; }, "rank is 99");
  wrong([&] { c.inputs[0].rank = 3; }, "expected");
  wrong([&] { c.inputs[0].shape[1] = -7; }, "-7");
  wrong([&] { c.inputs[0].shape[1] = 0; }, "shape[1] is 0");
  wrong([&] { c.inputs[0].shape[1] = INT64_MAX; }, "too large");
  wrong([&] { c.inputs[1].shape[1] = 5; }, "expected");
  wrong([&] { c.inputs[0].dtype = BRAID_I32; }, "I32");
  wrong([&] { c.inputs[0].dtype = static_cast<braid_dtype>(9); }, "dtype is 9");
  out.name = nullptr;
  expect(run("fast_weight"), BRAID_INVALID, "outputs[0].name");
  out.name = "dq";  // not of a forward pass
  expect(run("fast_weight"), BRAID_INVALID, "'dq' is not a result");
  out.name = "o", out.data = memory.data();
  expect(run("fast_weight"), BRAID_INVALID, "rank is 0");
  out.rank = 4;
  for (int i = 0; i < 4; ++i) out.shape[i] = c.inputs[0].shape[i];
  out.shape[1] = 6;
  expect(run("fast_weight"), BRAID_INVALID, "another shape");
  out.shape[1] = 7, out.dtype = BRAID_I32;
  expect(run("fast_weight"), BRAID_INVALID, "dtype");
  out.dtype = BRAID_F32;
  EXPECT_EQ(run("fast_weight"), BRAID_OK) << message();
  braid_tensor twice[] = {out, out};
  expect(braid_op_run(context_.get(), "fast_weight", nullptr, c.inputs.data(), 5, twice, 2, caught_.out()),
         BRAID_INVALID, "named twice");
  EXPECT_EQ(braid_op_name(braid_op_count()), nullptr);
  EXPECT_EQ(braid_op_help("nothing"), nullptr);
  EXPECT_EQ(braid_op_help(nullptr), nullptr);
}

}  // namespace
}  // namespace braid
