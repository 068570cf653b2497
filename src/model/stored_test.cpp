// Models whose weights stay as they are stored: the same numbers as an f32 model with what the formats keep,
// the same bits for sequences together and alone, mapped or made.
#include "model/stored.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "io/json.h"
#include "model/config_json.h"
#include "support/test_dir.h"
#include "verify/compare.h"
#include "kernels/weight_matmul/activations.h"
#include "model/families/convert.h"
#include "model/presets.h"

namespace braid {
namespace {

constexpr WeightFormat kFormats[] = {WeightFormat::kF32, WeightFormat::kBf16, WeightFormat::kQ8,
                                     WeightFormat::kQ4};
constexpr const char* kArchs[] = {"transformer", "qwen3-next", "qwen3.5", "olmo-hybrid", "mamba2"};

std::unique_ptr<Model> trained(const char* arch) {
  std::unique_ptr<Model> model = Model::create(*parse_config(*preset_config(arch, "tiny", 96), arch));
  model->init(1);
  for (float& x : model->params().block()) x *= 3;  // far from a model that says nothing
  return model;
}

// An f32 model with the numbers that another one has stored.
std::unique_ptr<Model> widened(const Model& stored) {
  std::unique_ptr<Model> model = Model::create(stored.config());
  model->params().allocate();
  for (size_t i = 0; i < stored.params().all().size(); ++i) {
    const Mat<float> to = model->params().mat(i);
    if (const StoredMatrix* m = stored.params().stored(i)) {
      std::vector<int32_t> all(m->rows);
      for (size_t r = 0; r < all.size(); ++r) all[r] = static_cast<int32_t>(r);
      weight_rows(*m, all.data(), to);
    } else {
      copy<float>(stored.params().mat(i), to);
    }
  }
  return model;
}

// Logits of each step of some sequences that are read together: a prompt each, then token by token.
std::vector<std::vector<float>> run(Model& model, const std::vector<std::vector<int32_t>>& sequences,
                                    size_t prompt, Activations activations = Activations::kF32) {
  Arena arena;
  std::vector<State> states(sequences.size());
  for (State& s : states) s = model.new_state();
  std::vector<State*> pointers;
  for (State& s : states) pointers.push_back(&s);
  std::vector<std::vector<float>> out(sequences.size());
  for (size_t at = 0; at < sequences[0].size(); at += at == 0 ? prompt : 1) {
    const size_t n = at == 0 ? prompt : 1;
    std::vector<int32_t> tokens;
    std::vector<uint32_t> offsets{0}, rows;
    for (const std::vector<int32_t>& s : sequences) {
      tokens.insert(tokens.end(), s.begin() + static_cast<ptrdiff_t>(at),
                    s.begin() + static_cast<ptrdiff_t>(at + n));
      offsets.push_back(static_cast<uint32_t>(tokens.size()));
      rows.push_back(offsets.back() - 1);
    }
    arena.reset();
    Exec exec({.arena = &arena, .params = &model.params(), .activations = activations});
    const Mat<float> y = model.logits(
        exec, model.hidden(exec, {.tokens = tokens, .offsets = offsets, .states = pointers}, rows));
    for (size_t s = 0; s < sequences.size(); ++s) out[s].insert(out[s].end(), y.row(s), y.row(s) + y.cols);
  }
  return out;
}

std::vector<std::vector<int32_t>> random_sequences(size_t n, size_t length) {
  Rng rng(5, "tokens");
  std::vector<std::vector<int32_t>> all(n, std::vector<int32_t>(length));
  for (auto& s : all)
    for (int32_t& t : s) t = static_cast<int32_t>(rng.uniform() * 96);
  return all;
}

TEST(Stored, AnyFormatComputesWhatAnF32ModelWithItsNumbersDoes) {
  for (const char* arch : kArchs) {
    const TestDir dir;
    ASSERT_TRUE(trained(arch)->save(dir / "m"));
    for (const WeightFormat f : kFormats) {
      Result<std::unique_ptr<Model>> stored = Model::load_stored(dir / "m", f);
      ASSERT_TRUE(stored) << stored.error().what;
      const std::unique_ptr<Model> wide = widened(**stored);
      for (const size_t prompt : {size_t{3}, size_t{40}}) {
        const auto tokens = random_sequences(1, prompt + 3);
        const Diff d = compare<float, float>(run(**stored, tokens, prompt)[0], run(*wide, tokens, prompt)[0]);
        // Some products round what they get to 16 bits; an f32 model does not.
        const Tol tolerance = weight_matmul_rounds(f) ? kTol16 : kTolF32Grad;
        EXPECT_TRUE(within(d, tolerance)) << arch << " " << weight_format_name(f) << " rms " << d.rms;
        const std::unique_ptr<Model> other = trained(arch);  // a mutant: all numbers a little larger
        for (float& x : other->params().block()) x *= 1.01f;
        EXPECT_FALSE(within(
            compare<float, float>(run(*other, tokens, prompt)[0], run(*wide, tokens, prompt)[0]), tolerance));
      }
    }
  }
}

// Activations of 8 bits change the logits of a prompt with bf16 weights, by less than the weights have lost,
// and nothing else: not what is written token by token, nor a model in f32.
TEST(Stored, ActivationsOfBf16ConcernPromptsWithBf16Weights) {
  for (const char* arch : kArchs) {
    const TestDir dir;
    ASSERT_TRUE(trained(arch)->save(dir / "m"));
    Result<std::unique_ptr<Model>> wide = Model::load_stored(dir / "m", WeightFormat::kF32),
                                   half = Model::load_stored(dir / "m", WeightFormat::kBf16);
    ASSERT_TRUE(wide && half);
    const auto tokens = random_sequences(1, 43);
    const auto logits = [&](Model& model, size_t prompt, Activations a) {
      return run(model, tokens, prompt, a)[0];
    };
    for (const size_t prompt : {size_t{1}, size_t{40}}) {
      const std::vector<float> f32 = logits(**wide, prompt, Activations::kF32),
                               exact = logits(**half, prompt, Activations::kF32),
                               rounded = logits(**half, prompt, Activations::kBf16);
      EXPECT_EQ(logits(**wide, prompt, Activations::kBf16), f32) << arch;
      EXPECT_EQ(rounded == exact, prompt == 1) << arch;
      EXPECT_LT((compare<float, float>(rounded, exact).rms), (compare<float, float>(exact, f32).rms)) << arch;
    }
  }
}

TEST(Stored, SequencesTogetherGetWhatEachGetsAlone) {
  for (const char* arch : kArchs) {
    const TestDir dir;
    ASSERT_TRUE(trained(arch)->save(dir / "m"));
    for (const WeightFormat f : kFormats) {
      Result<std::unique_ptr<Model>> model = Model::load_stored(dir / "m", f);
      ASSERT_TRUE(model);
      const auto tokens = random_sequences(8, 12);
      const auto together = run(**model, tokens, 1);
      for (size_t s = 0; s < tokens.size(); ++s)
        EXPECT_EQ(run(**model, {tokens[s]}, 1)[0], together[s])
            << arch << " " << weight_format_name(f) << " " << s;
    }
  }
}

TEST(Stored, AQuantisedFolderIsWhatLoadingWouldMake) {
  for (const char* arch : kArchs) {
    const TestDir dir;
    const std::unique_ptr<Model> model = trained(arch);
    ASSERT_TRUE(model->save(dir / "m"));
    for (const WeightFormat f : {WeightFormat::kQ8, WeightFormat::kQ4}) {
      const std::string out = dir / std::string(weight_format_name(f));
      const Result<Converted> done = convert_format({.in = dir / "m", .out = out, .format = f}, *model);
      ASSERT_TRUE(done) << done.error().what;
      Result<std::unique_ptr<Model>> mapped = Model::load_stored(out),
                                     made = Model::load_stored(dir / "m", f);
      ASSERT_TRUE(mapped) << mapped.error().what;
      const auto tokens = random_sequences(1, 10);
      EXPECT_EQ(run(**mapped, tokens, 4), run(**made, tokens, 4)) << arch;
      // What cannot be done with it is told.
      const Result<std::unique_ptr<Model>> f32 = Model::load_stored(out, WeightFormat::kF32),
                                           train = Model::load(out);
      if (!is_quantised(*SafeTensors::open(out + "/model.safetensors")))
        continue;  // no width is a whole block
      ASSERT_FALSE(f32);
      EXPECT_NE(f32.error().what.find("stored as"), std::string::npos) << f32.error().what;
      ASSERT_FALSE(train);
      EXPECT_NE(train.error().what.find("is quantised"), std::string::npos) << train.error().what;
      const Result<Converted> again =
          convert_format({.in = out, .out = dir / "again", .format = WeightFormat::kQ8}, *model);
      EXPECT_FALSE(again);
    }
  }
}

// Files of families keep rows of some matrices apart: nothing is copied, and nothing changes.
TEST(Stored, AFamilysFolderIsMapped) {
  for (const char* arch : {"qwen3-next", "qwen3.5", "olmo-hybrid"}) {
    const TestDir dir;
    const std::unique_ptr<Model> model = trained(arch);
    ASSERT_TRUE(model->save(dir / "ours"));
    const Result<HfConfigFile> hf = hf_config(model->config(), "");
    ASSERT_TRUE(hf);
    ASSERT_TRUE(convert_to_hf({.in = dir / "ours", .out = dir / "theirs"}, *model, *hf));
    Result<std::unique_ptr<Model>> ours = Model::load_stored(dir / "ours"),
                                   theirs = Model::load_stored(dir / "theirs");
    ASSERT_TRUE(ours && theirs);
    const auto tokens = random_sequences(1, 50);
    EXPECT_EQ(run(**ours, tokens, 40), run(**theirs, tokens, 40)) << arch;
  }
}

TEST(Stored, SmallAndDelicateMatricesStayF32) {
  for (const char* arch : kArchs) {
    const TestDir dir;
    ASSERT_TRUE(trained(arch)->save(dir / "m"));
    Result<std::unique_ptr<Model>> model = Model::load_stored(dir / "m", WeightFormat::kQ4);
    ASSERT_TRUE(model);
    const ParamSet& params = (*model)->params();
    for (size_t i = 0; i < params.all().size(); ++i)
      for (const char* name : {"norm", "conv1d", "a_proj", "b_proj", "A_log", "dt", "bias", ".gate.weight",
                               "shared_expert_gate"})
        if (params[i].name.find(name) != std::string::npos) {
          EXPECT_FALSE(params.stored(i)) << params[i].name;
        }
  }
}

TEST(Stored, ADamagedQuantisedFileIsRefused) {
  const TestDir dir;
  const std::unique_ptr<Model> model = trained("transformer");
  ASSERT_TRUE(model->save(dir / "m"));
  ASSERT_TRUE(convert_format({.in = dir / "m", .out = dir / "q", .format = WeightFormat::kQ8}, *model));
  std::vector<NamedTensor> some;
  const Result<SafeTensors> file = SafeTensors::open(dir / "q/model.safetensors");
  ASSERT_TRUE(file);
  for (const std::string& name : file->names())
    if (!name.ends_with("head.weight.scale")) some.push_back({name, *file->find(name)});
  ASSERT_TRUE(make_dirs(dir / "cut"));
  ASSERT_TRUE(save_json(dir / "cut/config.json", to_json(model->config())));
  ASSERT_TRUE(write_safetensors(dir / "cut/model.safetensors", some));
  const Result<std::unique_ptr<Model>> cut = Model::load_stored(dir / "cut");
  ASSERT_FALSE(cut);
  EXPECT_NE(cut.error().what.find("head.weight.scale: is missing"), std::string::npos) << cut.error().what;
}

}  // namespace
}  // namespace braid
