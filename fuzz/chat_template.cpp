// Any bytes as a chat template.
#include "io/json.h"
#include "chat/template.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace braid;
  const Result<ChatTemplate> chat = ChatTemplate::parse(
      {reinterpret_cast<const char*>(data), size}, "template",
      {.now = std::tm{}, .max_steps = 20'000, .max_output = 1 << 16, .max_memory = 1 << 22});
  if (!chat) return 0;
  static const Json context = Json::parse(R"({"messages": [{"role": "system", "content": "Be brief."},
    {"role": "user", "content": "Hi"}, {"role": "assistant", "content": "<think>x</think>Hello",
     "tool_calls": [{"type": "function", "function": {"name": "f", "arguments": {"a": 1.5, "b": [null, true]}}}]},
    {"role": "tool", "content": "42"}], "tools": [{"type": "function", "function": {"name": "f"}}],
    "add_generation_prompt": true, "bos_token": "<s>", "eos_token": "</s>"})");
  (void)chat->render(context);
  return 0;
}
