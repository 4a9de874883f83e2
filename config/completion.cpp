#include "config/completion.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "config/flags.hpp"

namespace gpunbd::config {
namespace {

using Words = std::vector<std::string_view>;

bool takes_path(std::string_view takes) {
    return takes == file_argument || takes == folder_argument || takes == "PATH" ||
           takes.ends_with(device_argument);
}

std::string replaced(std::string_view text, std::string_view what, std::string_view with) {
    std::string out(text);
    for (std::size_t at = 0; (at = out.find(what, at)) != std::string::npos; at += with.size()) {
        out.replace(at, what.size(), with);
    }
    return out;
}
std::string single_quoted(std::string_view text) {
    return fmt::format("'{}'", replaced(text, "'", "'\\''"));
}

template <class Action>
void for_each_flag(const Command& command, Action action) {
    for (const FlagGroup& group : command.groups) {
        for (const Flag& flag : group.flags) action(flag);
    }
}

// --- bash ----------------------------------------------------------------------------------------

std::string bash_flags(const Command& command) {
    std::string out;
    for_each_flag(command, [&](const Flag& flag) {
        for (std::string_view name : {flag.letter, flag.name}) {
            if (!name.empty()) out += fmt::format("{}{}", out.empty() ? "" : " ", name);
        }
    });
    return out;
}

// What completes the argument `takes`, as the body of a case.
std::string bash_values(std::string_view takes, const Words& words) {
    if (takes_path(takes)) return "files=yes";
    return fmt::format("words='{}'", fmt::join(words, " "));
}

std::string bash_case(const Command& command) {
    std::string values;
    for_each_flag(command, [&](const Flag& flag) {
        if (flag.takes.empty()) return;
        const std::string letter =
            flag.letter.empty() ? "" : fmt::format(" | {}:{}", command.name, flag.letter);
        values += fmt::format("        {}:{}{}) {} ;;\n", command.name, flag.name, letter,
                              bash_values(flag.takes, flag.words));
    });
    return values;
}

std::string bash() {
    std::string names;
    std::string arguments;
    std::string values;
    std::string flags;
    for (const Command& command : commands()) {
        names += fmt::format("{}{}", names.empty() ? "" : " ", command.name);
        values += bash_case(command);
        if (!command.takes.empty()) {
            arguments += fmt::format("        {}) {} ;;\n", command.name,
                                     bash_values(command.takes, command.words));
        }
        flags += fmt::format("        {}) flags='{}' ;;\n", command.name, bash_flags(command));
    }
    std::string out = R"(# bash completion of gpunbd, made by 'gpunbd completion bash'.
_gpunbd() {
    # What bash split at '=' and ':' is one word again: --device=cuda:0.
    local typed=() glue='' word
    for word in "${COMP_WORDS[@]:1:COMP_CWORD}"; do
        if [[ $word == [=:]* && ${#typed[@]} -gt 0 ]]; then
            typed[-1]+=$word
            glue=yes
        elif [[ $glue ]]; then
            typed[-1]+=$word
            glue=''
        else
            typed+=("$word")
        fi
    done
    local current=${typed[-1]-} previous='' command='' names='NAMES'
    ((${#typed[@]} < 2)) || previous=${typed[-2]}
    for word in "${typed[@]:0:${#typed[@]}-1}"; do
        if [[ " $names " == *" $word "* ]]; then
            command=$word
            break
        fi
    done

    local flag='' value=$current flags='PROGRAM' words='' files=''
    if [[ $current == --*=* ]]; then
        flag=${current%%=*}
        value=${current#*=}
    elif [[ $previous == -* && $current != -* ]]; then
        flag=$previous
    fi
    case $command in
FLAGS    esac
    case $command:$flag in
VALUES        *) flag='' ;;
    esac
    if [[ $flag == '' && $current == -* ]]; then
        words=$flags files=''
    elif [[ $flag == '' && $command == '' ]]; then
        words="$names $flags"
    elif [[ $flag == '' ]]; then
        case $command in
ARGUMENTS        esac
    fi

    local IFS=$'\n'
    if [[ $files ]]; then
        compopt -o filenames 2>/dev/null
        mapfile -t COMPREPLY < <(compgen -f -- "$value")
    else
        mapfile -t COMPREPLY < <(compgen -W "${words// /$'\n'}" -- "$value")
    fi
    # bash replaces what stands behind the last ':' only.
    if [[ $value == *:* && $COMP_WORDBREAKS == *:* ]]; then
        COMPREPLY=("${COMPREPLY[@]#"${value%"${value##*:}"}"}")
    fi
}
complete -F _gpunbd gpunbd
)";
    out = replaced(out, "NAMES", names);
    out = replaced(out, "ARGUMENTS", arguments);
    out = replaced(out, "PROGRAM", bash_flags(program()));
    out = replaced(out, "FLAGS", flags);
    return replaced(out, "VALUES", values);
}

// --- zsh -----------------------------------------------------------------------------------------

std::string zsh_action(std::string_view takes, const Words& words) {
    if (takes_path(takes)) return fmt::format(":{}:_files", takes);
    return fmt::format(":{}:({})", takes,
                       replaced(fmt::format("{}", fmt::join(words, " ")), ":", "\\:"));
}

std::string zsh_flag(const Flag& flag) {
    const std::string action = flag.takes.empty() ? "" : zsh_action(flag.takes, flag.words);
    const std::string brief = replaced(flag.brief, ":", "\\:");
    std::string out;
    for (std::string_view name : {flag.letter, flag.name}) {
        if (name.empty()) continue;
        const std::string others =
            flag.repeats ? "*" : fmt::format("({} {})", flag.letter, flag.name);
        const std::string_view joint = flag.takes.empty() ? "" : name == flag.letter ? "+" : "=";
        out += fmt::format("      {} \\\n", single_quoted(fmt::format("{}{}{}[{}]{}", others, name,
                                                                      joint, brief, action)));
    }
    return out;
}

std::string zsh_arguments(const Command& command) {
    std::string out;
    for_each_flag(command, [&](const Flag& flag) { out += zsh_flag(flag); });
    std::string_view left = command.takes;
    for (int place = 1; !left.empty(); ++place) {
        const std::size_t end = std::min(left.find(' '), left.size());
        out += fmt::format("      {} \\\n",
                           single_quoted(fmt::format(
                               "{}{}", place, zsh_action(left.substr(0, end), command.words))));
        left.remove_prefix(std::min(end + 1, left.size()));
    }
    return out.substr(0, out.size() - 3) + '\n';
}

std::string zsh() {
    std::string names;
    std::string cases;
    for (const Command& command : commands()) {
        names += fmt::format("      {}\n",
                             single_quoted(fmt::format("{}:{}", command.name, command.brief)));
        cases += fmt::format("  {})\n    _arguments -s \\\n{}    ;;\n", command.name,
                             zsh_arguments(command));
    }
    const std::string own = zsh_arguments(program());
    return fmt::format(R"(#compdef gpunbd
# zsh completion of gpunbd, made by 'gpunbd completion zsh'.
_gpunbd() {{
  local curcontext=$curcontext state line
  typeset -A opt_args
  _arguments -C '1: :->command' '*:: :->argument' \
{}  case $state in
  command)
    local -a names=(
{}    )
    _describe command names
    return
    ;;
  argument) ;;
  *) return ;;
  esac
  case $words[1] in
{}  esac
}}
if [[ $funcstack[1] == _gpunbd ]]; then
  _gpunbd "$@"
else
  compdef _gpunbd gpunbd
fi
)",
                       own, names, cases);
}

// --- fish ----------------------------------------------------------------------------------------

std::string fish_quoted(std::string_view text) {
    return fmt::format("'{}'", replaced(replaced(text, "\\", "\\\\"), "'", "\\'"));
}

std::string fish_argument(std::string_view takes, const Words& words) {
    if (takes.empty()) return "";
    if (takes_path(takes)) return " -r -F";
    return words.empty() ? " -x" : fmt::format(" -x -a '{}'", fmt::join(words, " "));
}

std::string fish_flags(const Command& command, std::string_view condition) {
    std::string out;
    for_each_flag(command, [&](const Flag& flag) {
        const std::string letter =
            flag.letter.empty() ? "" : fmt::format(" -s {}", flag.letter.substr(1));
        out += fmt::format("complete -c gpunbd -n {}{} -l {}{} -d {}\n", condition, letter,
                           flag.name.substr(2), fish_argument(flag.takes, flag.words),
                           fish_quoted(flag.brief));
    });
    return out;
}

std::string fish() {
    std::string out = R"(# fish completion of gpunbd, made by 'gpunbd completion fish'.
complete -c gpunbd -f
)";
    constexpr std::string_view no_command = "__fish_use_subcommand";
    for (const Command& command : commands()) {
        out += fmt::format("complete -c gpunbd -n {} -a {} -d {}\n", no_command, command.name,
                           fish_quoted(command.brief));
    }
    out += fish_flags(program(), no_command);
    for (const Command& command : commands()) {
        const std::string condition = fmt::format("'__fish_seen_subcommand_from {}'", command.name);
        out += fish_flags(command, condition);
        if (command.takes.empty()) continue;
        out += fmt::format("complete -c gpunbd -n {}{}\n", condition,
                           takes_path(command.takes)
                               ? std::string(" -F")
                               : fmt::format(" -a '{}'", fmt::join(command.words, " ")));
    }
    return out;
}

}  // namespace

std::string completion_script(std::string_view shell) {
    if (shell == "bash") return bash();
    return shell == "zsh" ? zsh() : fish();
}

}  // namespace gpunbd::config
