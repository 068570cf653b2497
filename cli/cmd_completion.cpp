// Scripts for bash, zsh and fish, from the same options that the parser uses.
#include <CLI/CLI.hpp>

#include "base/nearest.h"
#include "cli/cli.h"
#include "cli/help.h"

namespace braid {
namespace {

struct Word {
  std::string name, brief, help;  // "--model", "-m"; an argument without a name: "name", ""
  bool takes_value;
  ValueHint hint;
};
struct VerbWords {
  const Verb* verb;
  std::vector<Word> options, arguments;
};

std::vector<VerbWords> all_words() {
  std::vector<VerbWords> all;
  for (const Verb& v : all_verbs()) {
    CLI::App app("", v.name);
    (void)v.define(app);
    VerbWords words{&v, {}, {}};
    for (const CLI::Option* o : app.get_options()) {
      const bool named = !o->get_lnames().empty();
      Word w{named ? "--" + o->get_lnames().front() : o->get_name(true),
             o->get_snames().empty() ? "" : "-" + o->get_snames().front(),
             o->get_description(),
             o->get_expected_min() > 0,
             {}};
      w.hint = value_hint(v.name, w.name);
      (named ? words.options : words.arguments).push_back(std::move(w));
    }
    all.push_back(std::move(words));
  }
  return all;
}

std::string joined(const std::vector<std::string>& words) {
  std::string all;
  for (const std::string& w : words) all += (all.empty() ? "" : " ") + w;
  return all;
}

// ---- bash

std::string bash_values(const ValueHint& hint) {
  std::string words;
  if (!hint.words.empty()) words = fmt::format("_braid_words '{}'", joined(hint.words));
  const std::string paths = hint.files ? "_braid_paths -f" : hint.folders ? "_braid_paths -d" : "";
  return words + (words.empty() || paths.empty() ? "" : "; ") + paths;
}

void print_bash() {
  const std::vector<VerbWords> all = all_words();
  std::string verbs, after, arguments, options;
  for (const VerbWords& v : all) {
    verbs += (verbs.empty() ? "" : " ") + std::string(v.verb->name);
    std::vector<std::string> names;
    for (const Word& w : v.options) {
      names.push_back(w.name);
      const std::string pattern =
          fmt::format("{0}:{1}{2}", v.verb->name, w.name,
                      w.brief.empty() ? "" : fmt::format(" | {}:{}", v.verb->name, w.brief));
      // Nothing is offered for a value that could be any number or text.
      if (w.takes_value)
        after += fmt::format("    {}) {}; return ;;\n", pattern, w.hint.empty() ? ":" : bash_values(w.hint));
    }
    for (size_t i = 0; i < v.arguments.size(); ++i)
      if (!v.arguments[i].hint.empty())
        arguments += fmt::format("    {}:{}) {} ;;\n", v.verb->name, i + 2, bash_values(v.arguments[i].hint));
    options += fmt::format("    {}) _braid_words '{}' ;;\n", v.verb->name, joined(names));
  }
  say("# bash completion of braid: braid completion bash\n"
      "_braid_words() {{ while IFS= read -r word; do COMPREPLY+=(\"$word\"); done < <(compgen -W \"$1\" -- "
      "\"$cur\"); }}\n"
      "_braid_paths() {{\n"
      "  while IFS= read -r word; do COMPREPLY+=(\"$word\"); done < <(compgen \"$1\" -- \"$cur\")\n"
      "  compopt -o filenames 2> /dev/null\n"
      "}}\n"
      "_braid() {{\n"
      "  local cur=${{COMP_WORDS[COMP_CWORD]}} prev=${{COMP_WORDS[COMP_CWORD-1]}} verb=${{COMP_WORDS[1]}} "
      "word\n"
      "  COMPREPLY=()\n"
      "  if [ \"$COMP_CWORD\" -le 1 ]; then _braid_words '{} --help --version'; return; fi\n"
      "  # --option=value is three words here.\n"
      "  if [ \"$cur\" = = ]; then cur=; elif [ \"$prev\" = = ]; then prev=${{COMP_WORDS[COMP_CWORD-2]}}; "
      "fi\n"
      "  case $verb:$prev in\n{}  esac\n"
      "  if [ \"${{cur:0:1}}\" != - ]; then case $verb:$COMP_CWORD in\n{}  esac; fi\n"
      "  if [ ${{#COMPREPLY[@]}} -gt 0 ]; then return; fi\n"
      "  case $verb in\n{}  esac\n"
      "}}\n"
      "complete -F _braid braid\n",
      verbs, after, arguments, options);
}

// ---- zsh

// In single quotes; `also`: characters with a meaning inside of _arguments.
std::string quoted(std::string_view text, std::string_view also = "") {
  std::string out;
  for (const char c : text) {
    if (c == '\'')
      out += "'\\''";
    else
      out += (also.find(c) == std::string_view::npos ? "" : "\\") + std::string(1, c);
  }
  return out;
}

std::string zsh_values(const ValueHint& hint) {
  if (!hint.words.empty()) return fmt::format("({})", quoted(joined(hint.words), ":"));
  return hint.files ? "_files" : hint.folders ? "_files -/" : " ";
}

void print_zsh() {
  say("#compdef braid\n# zsh completion of braid: braid completion zsh\n_braid() {{\n  local -a verbs\n  "
      "verbs=(\n");
  const std::vector<VerbWords> all = all_words();
  for (const VerbWords& v : all) say("    '{}:{}'\n", v.verb->name, quoted(v.verb->summary, ":"));
  say("  )\n  if (( CURRENT == 2 )); then _describe verb verbs; return; fi\n"
      "  local verb=$words[2]\n  shift words; (( CURRENT-- ))\n  case $verb in\n");
  for (const VerbWords& v : all) {
    say("    {}) _arguments", v.verb->name);
    for (size_t i = 0; i < v.arguments.size(); ++i)
      say(" \\\n      '{}:{}:{}'", i + 1, v.arguments[i].name, zsh_values(v.arguments[i].hint));
    for (const Word& w : v.options)
      for (const std::string& name : {w.name, w.brief})
        if (!name.empty())
          say(" \\\n      '*{}[{}]{}'", name, quoted(w.help, "[]:"),
              w.takes_value ? fmt::format(":value:{}", zsh_values(w.hint)) : "");
    say(" ;;\n");
  }
  say("  esac\n}}\nif [ \"$funcstack[1]\" = _braid ]; then _braid \"$@\"; else compdef _braid braid; fi\n");
}

// ---- fish

void print_fish() {
  say("# fish completion of braid: braid completion fish\ncomplete -c braid -f\n");
  const auto text = [](std::string_view s) {
    std::string out;
    for (const char c : s) out += (c == '\'' || c == '\\' ? "\\" : "") + std::string(1, c);
    return out;
  };
  const std::vector<VerbWords> all = all_words();
  for (const VerbWords& v : all)
    say("complete -c braid -n __fish_use_subcommand -a {} -d '{}'\n", v.verb->name, text(v.verb->summary));
  for (const VerbWords& v : all) {
    const std::string in = fmt::format("complete -c braid -n '__fish_seen_subcommand_from {}'", v.verb->name);
    const auto values = [](const ValueHint& hint) {
      std::string out = hint.words.empty() ? "" : fmt::format(" -a '{}'", joined(hint.words));
      if (!hint.files && hint.folders) out += " -a '(__fish_complete_directories)'";
      return out + (hint.files ? " -F" : "");
    };
    for (const Word& w : v.arguments)
      if (!w.hint.empty()) say("{}{}\n", in, values(w.hint));
    for (const Word& w : v.options)
      say("{} -l {}{}{}{} -d '{}'\n", in, w.name.substr(2), w.brief.empty() ? "" : " -s " + w.brief.substr(1),
          w.takes_value ? (w.hint.files ? " -r" : " -x") : "", w.takes_value ? values(w.hint) : "",
          text(w.help));
  }
}

int run(const std::string& shell) {
  if (shell == "bash") return print_bash(), kOk;
  if (shell == "zsh") return print_zsh(), kOk;
  if (shell == "fish") return print_fish(), kOk;
  return wrong_use(
      {shell.empty() ? "completion: the shell is missing" : "completion: shell is '" + shell + "'",
       suggest(shell, {"bash", "zsh", "fish"})});
}

}  // namespace

std::function<int()> define_completion(CLI::App& app) {
  auto shell = std::make_shared<std::string>();
  OptionAdder add(app);
  add("shell", *shell, "bash, zsh or fish");
  add.footer([] {
    return fmt::format(
        "\nInstall\n"
        "  bash  {0} completion bash > ~/.local/share/bash-completion/completions/braid\n"
        "  zsh   {0} completion zsh > a folder of $fpath, as _braid\n"
        "  fish  {0} completion fish > ~/.config/fish/completions/braid.fish\n",
        program_name());
  });
  return [shell] { return run(*shell); };
}

}  // namespace braid
