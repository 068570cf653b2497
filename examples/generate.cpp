// Loads a model folder and continues a text; then the same session goes back to where the prompt ended.
#include <braid/braid.hpp>

#include <cstdio>

using namespace braid;

int fail(const Error& e) { return std::fprintf(stderr, "%s\n%s\n", e.what.c_str(), e.fix.c_str()), 1; }

int main(int argc, char** argv) {
  if (argc != 3) return std::fprintf(stderr, "usage: generate FOLDER PROMPT\n"), 2;
  const auto loaded = TextModel::load(argv[1]);
  if (!loaded) return fail(loaded.error());
  if (!loaded->tokenizer) return fail({"this model does not read text"});
  Context context;  // all processors
  Session session(*loaded->model, context);

  const auto tokens = loaded->tokenizer->encode(argv[2]);
  if (!tokens) return fail(tokens.error());
  const std::vector<int32_t>& ids = *tokens;
  StreamDecoder decoder(*loaded->tokenizer);
  const auto text_of = [&](std::optional<int32_t> id) { return id ? decoder.add(*id) : decoder.finish(); };
  const auto show = [](std::string_view s) { std::fwrite(s.data(), 1, s.size(), stdout); };
  show(argv[2]);
  const auto made = generate(session, ids, text_of, show, {.sampler = {.temperature = 0}, .max_tokens = 60});
  if (!made) return fail(made.error());
  std::printf("\n%zu tokens, ended by %s\n", made->tokens.size(), made->why.c_str());

  // The same step by step. A state is a value: kept here, continued twice.
  Session again(*loaded->model, context);
  again.feed(ids);
  const State after_prompt = again.state();
  const auto first = again.feed({made->tokens.data(), 1});
  const std::vector<float> kept(first.begin(), first.end());
  again.set_state(after_prompt);
  const auto second = again.feed({made->tokens.data(), 1});
  std::printf("state of %zu bytes; continued twice: %s\n", after_prompt.bytes(),
              std::equal(kept.begin(), kept.end(), second.begin()) ? "same logits" : "other logits");
}
