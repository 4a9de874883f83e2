#include "server/tools/manual/page.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <sstream>
#include <stdexcept>
#include <string_view>

#include "config/schema.hpp"

namespace gpunbd::tools {
namespace {

using namespace config;

// Escapes a line of running text that starts with a character that begins an mdoc request.
std::string escaped(std::string_view text) {
    std::string out;
    for (const char c : text) out += c == '\\' ? "\\e" : std::string(1, c);
    return out;
}

std::string key_entry(const KeyText& key) {
    std::string out = fmt::format(".It Va {}\n{}{}{}\n", key.path, key.type, key.range, key.about);
    if (!key.fallback.empty()) out += fmt::format("{}.\n", escaped(key.fallback));
    return out;
}

std::string key_entries(std::istream& names) {
    std::string out;
    for (std::string name; names >> name;) {
        const std::size_t before = out.size();
        for (const KeyText& key : all_keys()) {
            const bool inside =
                key.path.starts_with(name + '.') || key.path.starts_with(name + "[]");
            if (key.path == name || inside) out += key_entry(key);
        }
        if (out.size() == before) throw std::runtime_error(fmt::format("no key {}", name));
    }
    return out;
}

std::string lower_case(std::string_view text) {
    std::string out(text);
    std::ranges::transform(out, out.begin(), [](char c) {
        return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
    });
    return out;
}

// "Fl p Ar port , Fl -port Ar port"
std::string flag_head(const Flag& flag) {
    std::string argument;
    if (!flag.takes.empty() && !flag.words.empty() && flag.words.size() < 6 &&
        std::ranges::none_of(flag.words, [](std::string_view word) { return word == "auto"; })) {
        argument = fmt::format(" Cm {}", fmt::join(flag.words, " | "));
    } else if (!flag.takes.empty()) {
        argument = fmt::format(" Ar {}", lower_case(flag.takes));
    }
    std::string out;
    if (!flag.letter.empty()) out = fmt::format("Fl {}{} , ", flag.letter.substr(1), argument);
    return out + fmt::format("Fl {}{}", flag.name.substr(1), argument);
}

std::string flag_entry(const Flag& flag) {
    if (!flag.manual.empty()) return fmt::format(".It {}\n{}\n", flag_head(flag), flag.manual);
    return fmt::format(".It {}\n{}{}\n", flag_head(flag), flag.brief, escaped(flag.more));
}

std::string flag_entries(const Commands& all, std::string_view title) {
    for (const FlagGroup& group : find_command(all, "serve")->groups) {
        if (group.title != title) continue;
        std::string out;
        for (const Flag& flag : group.flags) out += flag_entry(flag);
        return out;
    }
    throw std::runtime_error(fmt::format("serve has no flags under {}", title));
}

}  // namespace

std::string manual_page(std::istream& page, const Commands& all) {
    std::string out;
    for (std::string line; std::getline(page, line);) {
        std::istringstream words(line);
        std::string request;
        words >> request;
        if (request == "@KEYS") {
            out += key_entries(words);
        } else if (request == "@FLAGS") {
            out += flag_entries(all, line.substr(line.find(' ') + 1));
        } else if (request == "@SYNOPSIS") {
            for (const auto& each : all) out += each->synopsis;
        } else if (request == "@COMMANDS") {
            for (const auto& each : all) out += each->manual;
        } else {
            out += line + '\n';
        }
    }
    return out;
}

}  // namespace gpunbd::tools
