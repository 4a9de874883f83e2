#include "server/tools/completion/scripts.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "config/devices/device_drivers.hpp"

namespace gpunbd::tools {
namespace {

using namespace config;

using Words = std::vector<std::string_view>;

// Prefixes of URIs.
constexpr std::string_view uris = "nbd://127.0.0.1:10809/ nbds:// nbd+unix:///?socket=";

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

// The driver for which a word stands for numbered ids, one per device file; null: the word stands
// for itself.
const DriverInfo* counted_driver(std::string_view word) {
    const auto found = std::ranges::find(device_drivers(), word, &DriverInfo::form);
    return found == device_drivers().end() || found->device_files.empty() ? nullptr : &*found;
}

bool is_admin_socket(const Flag& flag) { return flag.name == "--socket"; }

// The arguments of an action by place: "1", "2", or "*" for all.
struct ActionArgument {
    std::string place;
    std::string_view takes;
};
std::vector<ActionArgument> arguments_of(const Action& action) {
    std::vector<ActionArgument> out;
    std::string_view left = action.takes;
    for (int place = 1; !left.empty(); ++place) {
        std::string_view word = left.substr(0, left.find(' '));
        left.remove_prefix(std::min(word.size() + 1, left.size()));
        const bool all = word.ends_with("...");
        if (all) word.remove_suffix(3);
        if (word == export_argument || takes_path(word)) {
            out.push_back({all ? "*" : std::to_string(place), word});
        }
    }
    return out;
}

std::vector<std::string_view> action_names(const Description& command) {
    std::vector<std::string_view> out;
    out.reserve(command.actions.size());
    for (const Action& each : command.actions) out.push_back(each.name);
    return out;
}

// The words, separated by spaces. `count` returns the code that prints the numbered ids of a
// driver.
template <class Count>
std::string joined(const Words& words, Count count) {
    std::string out;
    for (std::string_view word : words) {
        if (!out.empty()) out += ' ';
        const DriverInfo* driver = counted_driver(word);
        out += driver == nullptr ? std::string(word) : count(*driver);
    }
    return out;
}

template <class Action>
void for_each_flag(const Description& command, Action action) {
    for (const FlagGroup& group : command.groups) {
        for (const Flag& flag : group.flags) action(flag);
    }
}

// --- bash ----------------------------------------------------------------------------------------

std::string bash_flags(const Description& command) {
    std::string out;
    for_each_flag(command, [&](const Flag& flag) {
        for (std::string_view name : {flag.letter, flag.name}) {
            if (!name.empty()) out += fmt::format("{}{}", out.empty() ? "" : " ", name);
        }
    });
    return out;
}

// The completions of the argument `takes`, as the body of a case.
std::string bash_values(std::string_view takes, const Words& words) {
    if (takes.starts_with(uri_argument)) return "_gpunbd_uri_or_file";
    if (takes.starts_with(export_argument)) return "words=$(_gpunbd_offer exports)";
    if (takes_path(takes)) return "files=yes";
    const auto count = [](const DriverInfo& driver) {
        return fmt::format("'\"$(_gpunbd_count {} {})\"'", driver.scheme, driver.device_files);
    };
    return fmt::format("words='{}'", joined(words, count));
}

// The completions of the action of a command, and of its arguments.
std::string bash_actions(const Description& command) {
    const std::string names = fmt::format("{}", fmt::join(action_names(command), " "));
    std::string out = fmt::format(R"(_gpunbd_given '{0}'
            case "${{given[0]-}}:${{#given[@]}}" in
            :0) words='{0}' ;;
)",
                                  names);
    for (const Action& action : command.actions) {
        for (const ActionArgument& each : arguments_of(action)) {
            out += fmt::format("            {}:{}) {} ;;\n", action.name, each.place,
                               bash_values(each.takes, {}));
        }
    }
    return out + "            esac";
}

std::string bash_case(const Description& command) {
    std::string values;
    for_each_flag(command, [&](const Flag& flag) {
        if (flag.takes.empty()) return;
        const std::string letter =
            flag.letter.empty() ? "" : fmt::format(" | {}:{}", command.name, flag.letter);
        values +=
            fmt::format("        {}:{}{}) {} ;;\n", command.name, flag.name, letter,
                        is_admin_socket(flag) ? "files=yes words=$(_gpunbd_offer admin-sockets)"
                                              : bash_values(flag.takes, flag.words));
    });
    return values;
}

std::string bash(const Commands& all) {
    std::string names;
    std::string arguments;
    std::string values;
    std::string flags;
    std::string wrappers;  // " keep:serve"
    for (const auto& each : all) {
        const Command& command = *each;
        if (command.hidden) continue;
        names += fmt::format("{}{}", names.empty() ? "" : " ", command.name);
        values += bash_case(command);
        if (!command.takes.empty() || !command.wraps.empty()) {
            const Words wrapped{command.wraps};
            arguments += fmt::format(
                "        {}) {} ;;\n", command.name,
                command.actions.empty()
                    ? bash_values(command.takes, command.takes.empty() ? wrapped : command.words)
                    : bash_actions(command));
        }
        if (!command.wraps.empty()) wrappers += fmt::format(" {}:{}", command.name, command.wraps);
        flags += fmt::format("        {}) flags='{}' ;;\n", command.name, bash_flags(command));
    }
    std::string out = R"(# bash completion of gpunbd, made by 'gpunbd completion bash'.
_gpunbd_count() { # prints $1:0, $1:1, ..., one for each file named $2 and a number
    local each count=0
    for each in "$2"[0-9]*; do
        [[ ! -e $each ]] || echo "$1":$((count++))
    done
}
_gpunbd_uri_or_file() { # sets words or files of _gpunbd
    if [[ " ${typed[*]:0:${#typed[@]}-1} " == *://* ]]; then
        files=yes
    else
        words='URIS'
        compopt -o nospace 2>/dev/null
    fi
}
_gpunbd_offer() { # prints the exports or the admin sockets of running servers
    local at socket=()
    for ((at = 0; at + 2 < ${#typed[@]}; ++at)); do
        [[ ${typed[at]} != --socket ]] || socket=(--socket "${typed[at + 1]}")
    done
    "${COMP_WORDS[0]}" offer "$1" "${socket[@]}" 2>/dev/null
}
_gpunbd_given() { # sets given to the words from the first action on; $1: the actions
    for word in "${typed[@]:0:${#typed[@]}-1}"; do
        if [[ ${#given[@]} -gt 0 || " $1 " == *" $word "* ]] && [[ $word != -* ]]; then
            given+=("$word")
        fi
    done
}
_gpunbd() {
    # Joins the words that bash splits at '=' and ':', such as --device=cuda:0.
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
        if [[ $command == '' && " $names " == *" $word "* || 'WRAPPERS ' == *" $command:$word "* ]]; then
            command=$word
        fi
    done

    local flag='' value=$current flags='PROGRAM' words='' files='' given=()
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
        mapfile -t COMPREPLY < <(compgen -f -- "$value"; compgen -W "$words" -- "$value")
    else
        mapfile -t COMPREPLY < <(compgen -W "${words// /$'\n'}" -- "$value")
    fi
    # bash replaces only the text after the last ':'.
    if [[ $value == *:* && $COMP_WORDBREAKS == *:* ]]; then
        COMPREPLY=("${COMPREPLY[@]#"${value%"${value##*:}"}"}")
    fi
}
complete -F _gpunbd gpunbd
)";
    out = replaced(out, "NAMES", names);
    out = replaced(out, "WRAPPERS", wrappers);
    out = replaced(out, "URIS", uris);
    out = replaced(out, "ARGUMENTS", arguments);
    out = replaced(out, "PROGRAM", bash_flags(program()));
    out = replaced(out, "FLAGS", flags);
    return replaced(out, "VALUES", values);
}

// --- zsh -----------------------------------------------------------------------------------------

std::string zsh_action(std::string_view takes, const Words& words) {
    if (takes == uri_argument) return fmt::format(":{}:_gpunbd_uris", takes);
    if (takes == export_argument) return fmt::format(":{}:_gpunbd_exports", takes);
    if (takes_path(takes)) return fmt::format(":{}:_files", takes);
    std::string plain;
    std::string counted;
    for (std::string_view word : words) {
        if (const DriverInfo* driver = counted_driver(word)) {
            counted += fmt::format(" {} {}", driver->scheme, driver->device_files);
        } else {
            plain += fmt::format(" {}", word);
        }
    }
    // A ':' that is not escaped ends the action.
    const std::string action = counted.empty()
                                   ? fmt::format("({})", fmt::join(words, " "))
                                   : fmt::format(" _gpunbd_count{} ={}", plain, counted);
    return fmt::format(":{}:{}", takes, replaced(action, ":", "\\:"));
}

std::string zsh_flag(const Flag& flag) {
    const std::string action = flag.takes.empty()      ? ""
                               : is_admin_socket(flag) ? ":PATH:_gpunbd_sockets"
                                                       : zsh_action(flag.takes, flag.words);
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

std::string zsh_arguments(const Description& command) {
    std::string out;
    for_each_flag(command, [&](const Flag& flag) { out += zsh_flag(flag); });
    if (!command.actions.empty()) {
        out += fmt::format("      '1:ACTION:({})' \\\n      '*:NAME:_gpunbd_{}' \\\n",
                           fmt::join(action_names(command), " "), command.name);
    }
    std::string_view left = command.actions.empty() ? command.takes : std::string_view();
    for (int place = 1; !left.empty(); ++place) {
        const std::size_t end = std::min(left.find(' '), left.size());
        out += fmt::format("      {} \\\n",
                           single_quoted(fmt::format(
                               "{}{}", place, zsh_action(left.substr(0, end), command.words))));
        left.remove_prefix(std::min(end + 1, left.size()));
    }
    if (!command.wraps.empty()) {
        out += fmt::format("      {} \\\n",
                           single_quoted(fmt::format("*:COMMAND:({})", command.wraps)));
    }
    return out.substr(0, out.size() - 3) + '\n';
}

// A function that completes the arguments of the actions of a command.
std::string zsh_actions(const Description& command) {
    std::string cases;
    for (const Action& action : command.actions) {
        for (const ActionArgument& each : arguments_of(action)) {
            cases += fmt::format("  {}:{}) {} ;;\n", action.name, each.place,
                                 each.takes == export_argument ? "_gpunbd_exports" : "_files");
        }
    }
    return fmt::format(R"(_gpunbd_{}() {{
  local -i at=${{words[(i)({})]}}
  case $words[at]:$(( CURRENT - at )) in
{}  esac
}}
)",
                       command.name, fmt::join(action_names(command), "|"), cases);
}

std::string zsh(const Commands& all) {
    std::string names;
    std::string cases;
    std::string wrappers;
    std::string functions;
    for (const auto& each : all) {
        const Command& command = *each;
        if (command.hidden) continue;
        if (!command.actions.empty()) functions += zsh_actions(command);
        if (!command.wraps.empty()) {
            wrappers += fmt::format(R"(  local -i at=${{words[(i){1}]}}
  if [[ $words[1] == {0} ]] && (( at < CURRENT )); then
    shift $(( at - 1 )) words
    (( CURRENT -= at - 1 ))
  fi
)",
                                    command.name, command.wraps);
        }
        names += fmt::format("      {}\n",
                             single_quoted(fmt::format("{}:{}", command.name, command.brief)));
        cases += fmt::format("  {})\n    _arguments -s \\\n{}    ;;\n", command.name,
                             zsh_arguments(command));
    }
    const std::string own = zsh_arguments(program());
    const std::string quoted_uris = "'" + replaced(uris, " ", "' '") + "'";
    return fmt::format(R"zsh(#compdef gpunbd
# zsh completion of gpunbd, made by 'gpunbd completion zsh'.
_gpunbd_uris() {{
  compadd -S '' -- {}
}}
_gpunbd_exports() {{
  local -a found=(${{(f)"$(gpunbd offer exports 2>/dev/null)"}})
  compadd -- $found
}}
_gpunbd_sockets() {{
  local -a found=(${{(f)"$(gpunbd offer admin-sockets 2>/dev/null)"}})
  compadd -- $found
  _files
}}
{}_gpunbd_count() {{  # WORD... = SCHEME FILES...: adds SCHEME:0, SCHEME:1, ..., one for each file named FILES and a number
  local -i at=${{argv[(i)=]}} i
  local -a found=($argv[1,at-1]) files
  local scheme name
  for scheme name in $argv[at+1,-1]; do
    files=(${{~name}}<->(N))
    for (( i = 0; i < $#files; ++i )); do found+=($scheme:$i); done
  done
  compadd -- $found
}}
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
{}  case $words[1] in
{}  esac
}}
if [[ $funcstack[1] == _gpunbd ]]; then
  _gpunbd "$@"
else
  compdef _gpunbd gpunbd
fi
)zsh",
                       quoted_uris, functions, own, names, wrappers, cases);
}

// --- fish ----------------------------------------------------------------------------------------

std::string fish_quoted(std::string_view text) {
    return fmt::format("'{}'", replaced(replaced(text, "\\", "\\\\"), "'", "\\'"));
}

std::string fish_argument(std::string_view takes, const Words& words) {
    if (takes.empty()) return "";
    if (takes_path(takes)) return " -r -F";
    if (words.empty()) return " -x";
    const auto count = [](const DriverInfo& driver) {
        return fmt::format("(__gpunbd_count {} {})", driver.scheme, driver.device_files);
    };
    return fmt::format(" -x -a '{}'", joined(words, count));
}

std::string fish_flags(const Description& command, std::string_view condition) {
    std::string out;
    for_each_flag(command, [&](const Flag& flag) {
        const std::string letter =
            flag.letter.empty() ? "" : fmt::format(" -s {}", flag.letter.substr(1));
        out += fmt::format(
            "complete -c gpunbd -n {}{} -l {}{} -d {}\n", condition, letter, flag.name.substr(2),
            fish_argument(flag.takes, flag.words) +
                (is_admin_socket(flag) ? " -a '(__gpunbd_offer admin-sockets)'" : ""),
            fish_quoted(flag.brief));
    });
    return out;
}

std::string fish_actions(const Description& command) {
    const std::string names = fmt::format("{}", fmt::join(action_names(command), " "));
    std::string out = fmt::format(
        "complete -c gpunbd -n '__fish_seen_subcommand_from {0}; and not "
        "__fish_seen_subcommand_from {1}' -a '{1}'\n",
        command.name, names);
    for (const Action& action : command.actions) {
        for (const ActionArgument& each : arguments_of(action)) {
            out += fmt::format(
                "complete -c gpunbd -n '__fish_seen_subcommand_from {}; and "
                "__fish_seen_subcommand_from {}'{}\n",
                command.name, action.name,
                each.takes == export_argument ? " -a '(__gpunbd_offer exports)'" : " -F");
        }
    }
    return out;
}

std::string fish(const Commands& all) {
    std::string out = R"(# fish completion of gpunbd, made by 'gpunbd completion fish'.
function __gpunbd_count # prints $argv[1]:0, ..., one for each file named $argv[2] and a number
    set -l count 0
    set -l folder (string replace -r '[^/]*$' '' $argv[2])
    for each in $folder*
        if string match -qr "^$argv[2]"'[0-9]+$' $each
            echo $argv[1]:$count
            set count (math $count + 1)
        end
    end
end
function __gpunbd_uris
    string split ' ' 'URIS'
end
function __gpunbd_offer # prints the exports or the admin sockets of running servers
    gpunbd offer $argv 2>/dev/null
end
function __gpunbd_has_uri
    string match -q -- '*://*' (commandline -opc)
end
function __gpunbd_wraps # $argv: a command, and the one whose command line follows it
    contains -- $argv[1] (commandline -opc); and not contains -- $argv[2] (commandline -opc)
end
function __gpunbd_behind_dashes # completes the command line of $argv after --, where fish itself offers no flags
    set -l words (commandline -opc)
    set -l at (contains -i -- -- $words); or return
    set -l line $words[(math $at + 1)..-1]
    if test (count $line) -eq 0
        echo $argv
    else
        complete -C "gpunbd "(string join ' ' -- (string escape -- $line) (commandline -ct))
    end
end
complete -c gpunbd -f
)";
    out = replaced(out, "URIS", uris);
    constexpr std::string_view no_command = "__fish_use_subcommand";
    for (const auto& each : all) {
        const Command& command = *each;
        if (command.hidden) continue;
        out += fmt::format("complete -c gpunbd -n {} -a {} -d {}\n", no_command, command.name,
                           fish_quoted(command.brief));
    }
    out += fish_flags(program(), no_command);
    for (const auto& each : all) {
        const Command& command = *each;
        if (command.hidden) continue;
        const std::string condition =
            command.wraps.empty()
                ? fmt::format("'__fish_seen_subcommand_from {}'", command.name)
                : fmt::format("'__gpunbd_wraps {} {}'", command.name, command.wraps);
        out += fish_flags(command, condition);
        if (!command.wraps.empty()) {
            out += fmt::format(
                "complete -c gpunbd -n {} -a {}\n"
                "complete -c gpunbd -n '__fish_seen_subcommand_from {}; and contains -- -- "
                "(commandline -opc)' -a '(__gpunbd_behind_dashes {})'\n",
                condition, command.wraps, command.name, command.wraps);
        }
        if (command.takes.empty()) continue;
        if (!command.actions.empty()) {
            out += fish_actions(command);
            continue;
        }
        if (command.takes.starts_with(export_argument)) {
            out +=
                fmt::format("complete -c gpunbd -n {} -a '(__gpunbd_offer exports)'\n", condition);
            continue;
        }
        if (command.takes.starts_with(uri_argument)) {
            out += fmt::format(
                "complete -c gpunbd -n '__fish_seen_subcommand_from {}; and not __gpunbd_has_uri' "
                "-a '(__gpunbd_uris)'\n",
                command.name);
            if (command.takes == uri_argument) continue;
            out += fmt::format(
                "complete -c gpunbd -n '__fish_seen_subcommand_from {}; and __gpunbd_has_uri' -F\n",
                command.name);
            continue;
        }
        out += fmt::format("complete -c gpunbd -n {}{}\n", condition,
                           takes_path(command.takes)
                               ? std::string(" -F")
                               : fmt::format(" -a '{}'", fmt::join(command.words, " ")));
    }
    return out;
}

}  // namespace

std::string completion_script(std::string_view shell, const Commands& all) {
    if (shell == "bash") return bash(all);
    return shell == "zsh" ? zsh(all) : fish(all);
}

}  // namespace gpunbd::tools
