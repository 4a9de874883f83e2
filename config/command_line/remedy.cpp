#include "config/command_line/remedy.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "config/quote.hpp"
#include "config/rules.hpp"
#include "config/size.hpp"

namespace gpunbd::config {
namespace {

constexpr std::size_t max_line = 72;  // longer command lines are shortened

std::string called(const Description& command) {
    return command.name.empty() ? "gpunbd" : fmt::format("gpunbd {}", command.name);
}

std::string as_typed(const std::string& argument) {
    const bool plain = !argument.empty() && argument.find_first_not_of(
                                                "abcdefghijklmnopqrstuvwxyz"
                                                "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                                "0123456789-_./:=%,+@") == std::string::npos;
    return plain ? argument : in_quotes(argument);
}

std::vector<std::string_view> names_of(const Description& command) {
    std::vector<std::string_view> out;
    for (const FlagGroup& group : command.groups) {
        for (const Flag& flag : group.flags) out.push_back(flag.name);
    }
    return out;
}

// The flags of `command` that `name` may stand for.
std::vector<std::string_view> meant_flags(const Description& command, std::string_view name) {
    for (const FlagGroup& group : command.groups) {
        for (const Flag& flag : group.flags) {
            if (has_word(flag.called, name)) return {flag.name};
        }
    }
    const auto names = names_of(command);
    if (const auto near = rules::nearest(name, names); !near.empty()) return {near};
    std::vector<std::string_view> out;
    if (name.size() < 2 || name[1] == '-') return out;
    for (std::string_view each : names) {
        if (each[2] == rules::lower_case(name)[1]) out.push_back(each);
    }
    return out;
}

bool is_file(std::string_view word) {
    return word.find('/') != std::string_view::npos || word.ends_with(".yaml") ||
           word.ends_with(".yml") || word.ends_with(".conf");
}

template <class Rule>
bool fits(Rule rule, std::string_view word) {
    return !std::holds_alternative<rules::Wrong>(rule(word));
}

std::string about_missing_argument(const Flag& flag) {
    const bool short_list = !flag.words.empty() && flag.words.size() < 6;
    return fmt::format("{} needs its {}{}; write for example {} {}", flag.name, flag.takes,
                       short_list ? fmt::format(": {}", rules::either(flag.words)) : "", flag.name,
                       flag.example);
}

}  // namespace

// The same arguments for another command.
std::string UsageAdvice::line_for(const Description& command) const {
    std::string out = called(command);
    bool command_seen = false;
    for (const std::string& argument : line_) {
        if (!command_seen && find_command(all_, argument) != nullptr) {
            command_seen = true;
            continue;
        }
        const std::string next = as_typed(argument);
        if (out.size() + next.size() > max_line) return out + " ...";
        out += ' ' + next;
    }
    return out;
}

// A flag of serve with `word` as its value, if the word resembles one; otherwise empty.
std::string UsageAdvice::flag_for(std::string_view word) const {
    const auto with = [&](std::string_view flag) {
        return fmt::format("{} {}", flag, as_typed(std::string(word)));
    };
    if (word.empty()) return {};
    // The syntax of nbdkit: size=1G.
    const std::string name = fmt::format("--{}", word.substr(0, word.find('=')));
    if (const Flag* flag = find_flag(serve(), name)) {
        if (word.find('=') != std::string_view::npos) return as_typed(fmt::format("--{}", word));
        return flag->takes.empty() ? std::string(flag->name)
                                   : fmt::format("{} {}", flag->name, flag->example);
    }
    if (word.ends_with(".sock") || word.ends_with(".socket")) return with("--unix");
    if (is_file(word)) return with("--config");
    for (const FlagGroup& group : serve().groups) {
        for (const Flag& flag : group.flags) {
            if (std::find(flag.words.begin(), flag.words.end(), word) != flag.words.end()) {
                return with(flag.name);
            }
        }
    }
    if (fits(rules::device_id, word)) return with("--device");
    if (fits(rules::port, word)) return with("--port");
    if (fits(rules::export_size, word)) return with("--size");
    if (fits(rules::address, word)) return with("--bind");
    const std::size_t colon = std::min(word.rfind(':'), word.size() - 1);
    if (fits(rules::address, word.substr(0, colon)) && fits(rules::port, word.substr(colon + 1))) {
        return fmt::format("--bind {} --port {}", word.substr(0, colon), word.substr(colon + 1));
    }
    return {};
}

std::string UsageAdvice::on_stray_command(std::string_view word) const {
    if (const auto flag = fmt::format("--{}", word); find_flag(program(), flag) != nullptr) {
        return fmt::format("unknown command {}; did you mean gpunbd {}?", in_quotes(word), flag);
    }
    std::vector<std::string_view> names;
    for (const auto& each : all_) {
        const Command& command = *each;
        if (command.hidden) continue;
        names.push_back(command.name);
        if (!word.empty() && has_word(command.called, word)) {
            return fmt::format("unknown command {}; did you mean {}?", in_quotes(word),
                               called(command));
        }
    }
    if (const auto near = rules::nearest(word, names); !near.empty()) {
        return fmt::format("unknown command {}; did you mean gpunbd {}?", in_quotes(word), near);
    }
    if (const std::string flag = flag_for(word); !flag.empty()) {
        return fmt::format("unknown command {}; did you mean gpunbd serve {}?", in_quotes(word),
                           flag);
    }
    return fmt::format("unknown command {}; use {}", in_quotes(word), rules::either(names));
}

std::string UsageAdvice::on_unknown_flag(const Description& owner, std::string_view text) const {
    const std::string_view name = text.substr(0, text.find('='));
    std::string unknown = fmt::format("unknown flag {}", in_quotes(text));
    if (owner.takes == file_argument && has_word("-c -f --config --file", name)) {
        return fmt::format("{}; write {} {}, without a flag", unknown, called(owner),
                           file_argument);
    }
    for (const auto& each : all_) {
        const Command& other = *each;
        if (find_flag(other, name) == nullptr) continue;
        return fmt::format("{} is a flag of {}; write {}", name, called(other), line_for(other));
    }
    if (const auto meant = meant_flags(owner, name); !meant.empty()) {
        return fmt::format("{}; did you mean {}?", unknown, rules::either(meant));
    }
    if (find_flag(program(), name) != nullptr) {
        return fmt::format("{} is a flag of gpunbd itself; write gpunbd {}", name, name);
    }
    if (owner.name.empty()) {
        const auto of_serve = meant_flags(serve(), name);
        if (!of_serve.empty()) {
            return fmt::format("{}; did you mean gpunbd serve {}?", unknown,
                               rules::either(of_serve));
        }
    }
    return unknown;
}

std::string UsageAdvice::on_stray_word(std::string_view word) const {
    if (given_.name.empty()) return on_stray_command(word);
    const std::string stray = fmt::format("unexpected argument {}", in_quotes(word));
    // The last match, because an earlier equal word can be the value of a flag.
    const auto at = std::find(line_.rbegin(), line_.rend(), word);
    const std::string before = at == line_.rend() || at + 1 == line_.rend() ? "" : *(at + 1);
    if (const Flag* flag = find_flag(given_, before); flag != nullptr && flag->takes.empty()) {
        return fmt::format("{}; {} takes none: write it alone", stray, flag->name);
    }
    if (given_.name != serve().name) {
        return fmt::format(
            "{}; {} takes {}", stray, called(given_),
            given_.takes.empty() ? "flags only" : fmt::format("one {} at a time", given_.takes));
    }
    if (find_command(all_, word) != nullptr) {
        return fmt::format("{}; one command at a time: gpunbd {}", stray, word);
    }
    if (std::holds_alternative<Size>(parse_size(before + std::string(word)))) {
        return fmt::format("{}; a size is one word: {}{}", stray, before, word);
    }
    if (std::find(line_.begin(), line_.end(), "--run") != line_.end()) {
        return fmt::format("{}; quote the command of --run as one argument: --run {}", stray,
                           find_flag(serve(), "--run")->example);
    }
    const std::string flag = flag_for(word);
    return flag.empty() ? fmt::format("{}; values follow flags, as in --size 8G", stray)
                        : fmt::format("{}; did you mean {}?", stray, flag);
}

std::string UsageAdvice::on_misread_flag() const {
    for (std::size_t i = 0; i < line_.size() && line_[i] != "--"; ++i) {
        const std::size_t end = line_[i].find('=');
        const std::string name = line_[i].substr(0, end);
        const Flag* flag = find_flag(given_, name);
        if (flag == nullptr) {
            // CLI11 would read -port as -p with the value "ort".
            if (name.size() > 2 && find_flag(given_, '-' + name) != nullptr) {
                return fmt::format("unknown flag {}; did you mean -{}?", in_quotes(name), name);
            }
        } else if (flag->takes.empty() && end != std::string::npos) {
            return fmt::format("{} takes no argument; write {} alone, or leave it out", name, name);
        } else if (!flag->takes.empty() && end == std::string::npos) {
            ++i;
            if (i == line_.size() || find_flag(given_, line_[i]) != nullptr) {
                return about_missing_argument(*flag);
            }
        }
    }
    return {};
}

}  // namespace gpunbd::config
