#include "server/tools/manual/subcommand.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <sstream>
#include <stdexcept>
#include <string_view>

#include "config/command_line/store.hpp"
#include "config/schema.hpp"
#include "server/admin/metrics/metrics.hpp"
#include "server/admin/model/schemas.hpp"
#include "server/base/process.hpp"

namespace gpunbd::tools {

namespace {

using namespace config;

// mdoc reads a backslash as the start of an escape.
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

// "NAME... [--socket PATH]" -> " Ar name ... Oo Fl -socket Ar path Oc"
std::string markup(std::string_view usage) {
    std::string spaced;
    for (const char c : usage)
        spaced += std::string_view("[]|").find(c) != std::string_view::npos ? fmt::format(" {} ", c)
                                                                            : std::string(1, c);
    std::istringstream words(spaced);
    std::string out;
    for (std::string word; words >> word;) {
        const bool repeated = word.ends_with("...");
        if (repeated) word.erase(word.size() - 3);
        if (word == "[" || word == "]") {
            out += word == "[" ? " Oo" : " Oc";
        } else if (word == "|") {
            out += " |";
        } else if (word.starts_with("--")) {
            out += fmt::format(" Fl {}", word.substr(1));
        } else if (lower_case(word) == word) {
            out += fmt::format(" Cm {}", word);
        } else {
            out += fmt::format(" Ar {}", lower_case(word));
        }
        if (repeated) out += " ...";
    }
    return out;
}

// Each form of the command's usage, without "gpunbd".
std::vector<std::string> forms_of(const Description& command) {
    std::vector<std::string> out;
    std::istringstream lines{command.usage.substr(command.usage.find(' '))};
    for (std::string line; std::getline(lines, line);) {
        const std::size_t name = line.find("gpunbd ");
        if (name != line.npos) {
            out.push_back(markup(line.substr(name + std::string_view("gpunbd ").size())));
        } else {
            out.back() += markup(line);
        }
    }
    return out;
}

std::string synopsis(const Description& command) {
    std::string out;
    for (const std::string& form : forms_of(command))
        out += fmt::format(".Nm\n.{}\n", form.substr(1));
    return out;
}

std::string command_entry(const Description& command) {
    std::string out;
    for (const std::string& form : forms_of(command)) out += fmt::format(".It{}\n", form);
    return out + std::string(command.manual.empty() ? command.about : command.manual);
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
    return fmt::format(".It {}\n{}{}\n{}{}", flag_head(flag), flag.brief, escaped(flag.more),
                       flag.details, flag.details.empty() ? "" : "\n");
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

// A list of the flags of a command. Those of serve have groups of their own.
std::string command_flags(const Description& command) {
    std::string entries;
    for (const FlagGroup& group : command.groups) {
        for (const Flag& flag : group.flags) {
            // Every command has --help; the list of gpunbd itself describes it.
            if (flag.name != "--help" || command.name.empty()) entries += flag_entry(flag);
        }
    }
    if (entries.empty()) return {};
    return fmt::format(".Ss Flags of {}\n.Bl -tag -width Ds\n{}.El\n",
                       command.name.empty() ? "gpunbd" : command.name, entries);
}

std::string all_command_flags(const Commands& all) {
    std::string out;
    for (const auto& each : all) {
        if (!each->hidden && each->name != "serve") out += command_flags(*each);
    }
    return out + command_flags(program());
}

std::string metric_entries() {
    std::string out;
    for (const server::MetricText& metric : server::all_metrics()) {
        out += fmt::format(".It Li {}", metric.name);
        if (!metric.labels.empty()) out += fmt::format(" Brq {}", fmt::join(metric.labels, ", "));
        out += fmt::format("\n{}\n", metric.help);
    }
    return out;
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
        } else if (request == "@COMMAND_FLAGS") {
            out += all_command_flags(all);
        } else if (request == "@SYNOPSIS") {
            for (const auto& each : all) out += each->hidden ? "" : synopsis(*each);
        } else if (request == "@COMMANDS") {
            for (const auto& each : all) out += each->hidden ? "" : command_entry(*each);
        } else if (request == "@METRICS") {
            out += metric_entries();
        } else if (request == "@SCHEMAS") {
            out += server::status_schemas();
        } else {
            out += line + '\n';
        }
    }
    return out;
}

using namespace config;

ManualCommand::ManualCommand()
    : Command({.name = "manual",
               .takes = file_argument,
               .example = "gpunbd.yaml.5.in",
               .brief = "Complete the template of a manual page",
               .usage = "Usage: gpunbd manual FILE\n",
               .about = "Used by the build of gpunbd.\n",
               .groups = {{"Flags", {}}},
               .examples = "  gpunbd manual config/packaging/man/gpunbd.yaml.5.in\n",
               .ending = "Exit codes: 0 done; 1 the file cannot be read; 2 wrong usage.\n"
                         "See also: gpunbd(8)\n",
               .hidden = true,
               .store = into(path)}) {}

int ManualCommand::run(const Commands& all) {
    std::ifstream page(path);
    if (!page) {
        fmt::print(stderr, "gpunbd manual: {} cannot be read\n", path);
        return server::exit_failure;
    }
    fmt::print("{}", manual_page(page, all));
    return 0;
}

}  // namespace gpunbd::tools
