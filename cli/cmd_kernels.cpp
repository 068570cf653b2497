#include "base/cpu.h"
#include "cli/cli.h"
#include "kernels/registry.h"

namespace braid {

std::function<int()> define_kernels(CLI::App& app) {
  auto json = std::make_shared<bool>(false);
  OptionAdder add(app);
  add("--json", *json, "one JSON line per op and implementation");
  return [json] {
    const KernelChoice choice = kernel_choice();
    const Par par = Par().with(choice);
    if (!*json) say("{}: {}, using {}\n", cpu_model(), isa_name(detected_isa()), isa_name(choice.isa()));
    for (const OpEntry& op : all_ops()) {
      const ImplTable& table = op.impls();
      if (!*json) say("{:<16} {}\n", op.name, op.summary);
      for (size_t i = 0; i < table.rows().size(); ++i) {
        const std::string why = table.refusal(i, par);
        if (*json)
          print_json(
              {{"op", op.name}, {"impl", table.rows()[i].name}, {"chosen", why.empty()}, {"why_not", why}});
        else
          say("    {} {:<10} {}\n", why.empty() ? "*" : " ", table.rows()[i].name,
              why.empty() ? "chosen" : why);
      }
    }
    return static_cast<int>(kOk);
  };
}

}  // namespace braid
