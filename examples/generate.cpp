// Loads a model folder and continues a text; then the same session goes back to where the prompt ended.
#include <braid/infer.h>

#include <cstdio>

using namespace braid;

int fail(const Error& e) { return std::fprintf(stderr, "%s\n%s\n", e.what.c_str(), e.fix.c_str()), 1; }

int main(int argc, char** argv) {
  if (argc != 3) return std::fprintf(stderr, "usage: generate FOLDER PROMPT\n"), 2;
  const auto model = Model::load(argv[1]);
  if (!model) return fail(model.error());
  ThreadPool pool(cpu_count());
  Session session(**model, pool);

  const std::string prompt = argv[2];
  const std::vector<int32_t> ids(prompt.begin(), prompt.end());  // a token per byte
  const auto text_of = [](int32_t id) { return std::string(1, static_cast<char>(id)); };
  const auto show = [](std::string_view s) { std::fwrite(s.data(), 1, s.size(), stdout); };
  show(prompt);
  const auto made = generate(session, ids, {.sampler = {.temperature = 0}, .max_tokens = 60}, text_of, show);
  if (!made) return fail(made.error());
  std::printf("\n%zu bytes, ended by %s\n", made->tokens.size(), made->why.c_str());

  // The same step by step. A state is a value: kept here, continued twice.
  Session again(**model, pool);
  again.feed(ids);
  const State after_prompt = again.state();
  const auto first = again.feed({made->tokens.data(), 1});
  const std::vector<float> kept(first.begin(), first.end());
  again.set_state(after_prompt);
  const auto second = again.feed({made->tokens.data(), 1});
  std::printf("state of %zu bytes; continued twice: %s\n", after_prompt.bytes(),
              std::equal(kept.begin(), kept.end(), second.begin()) ? "same logits" : "other logits");
}
