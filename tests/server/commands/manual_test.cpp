// Compares the manuals, the help and the example with the program.
#include <fmt/format.h>

#include <fstream>
#include <sstream>

#include "config/command_line/parse.hpp"
#include "config/schema.hpp"
#include "config/yaml_file.hpp"
#include "server/commands/commands.hpp"
#include "server/tools/manual/subcommand.hpp"
#include "tests/config/text.hpp"
#include "tests/test.hpp"

namespace gpunbd::config {
namespace {

using Words = std::set<std::string>;

constexpr std::string_view flag_letters = "abcdefghijklmnopqrstuvwxyz-";
constexpr std::string_view key_letters = "abcdefghijklmnopqrstuvwxyz_.[]";

// The words of `letters` after each `marker` in the text.
Words words_after(const std::string& text, const std::string& marker, std::string_view letters) {
    Words out;
    for (std::size_t at = 0; (at = text.find(marker, at)) != std::string::npos;) {
        at += marker.size();
        const std::size_t end = std::min(text.find_first_not_of(letters, at), text.size());
        if (end > at) out.insert(text.substr(at, end - at));
    }
    return out;
}

// An installed manual page.
std::string page(const std::string& name) {
    std::ifstream file(GPUNBD_CONFIG_FOLDER "/packaging/man/" + name + ".in");
    REQUIRE(file);
    return tools::manual_page(file, server::all_commands());
}

// The flags in a help text: each is on a line of its own, after two or six spaces.
Words flags_of(const std::string& help) {
    Words out;
    std::istringstream lines(help);
    for (std::string line; std::getline(lines, line);) {
        if (line.size() < 9 || line.substr(0, 2) != "  " || line.substr(6, 2) != "--") continue;
        out.insert(line.substr(8, line.find_first_not_of(flag_letters, 8) - 8));
    }
    return out;
}

std::string help_of(const std::vector<std::string>& command) {
    std::vector<const char*> arguments{"gpunbd"};
    for (const std::string& each : command) arguments.push_back(each.c_str());
    arguments.push_back("--help");
    return parse(server::all_commands(), static_cast<int>(arguments.size()), arguments.data())
        .message;
}

// Those that the help lists.
std::vector<std::string> names_of_commands() {
    std::vector<std::string> out;
    for (const auto& each : server::all_commands()) {
        if (!each->hidden) out.emplace_back(each->name);
    }
    return out;
}

// True if the command has the flag; errors of its argument are ignored.
bool is_taken(const std::string& command, const std::string& flag) {
    const std::string text = "--" + flag;
    const char* const arguments[] = {"gpunbd", command.c_str(), text.c_str(), "x"};
    const Commands commands = server::all_commands();
    const Parsed line = parse(commands, 4, arguments);
    return !contains(line.message, "unknown flag");
}

TEST_CASE("gpunbd(8) and --help list the same flags, and the program accepts all of them") {
    const std::string manual = page("gpunbd.8");
    const Words in_manual = words_after(manual, "Fl -", flag_letters);
    REQUIRE(in_manual.size() > 20);

    Words in_help = flags_of(help_of({}));
    for (const std::string& command : names_of_commands()) {
        for (const std::string& flag : flags_of(help_of({command}))) {
            CAPTURE(flag);
            CHECK(is_taken(command, flag));
            in_help.insert(flag);
        }
    }
    for (const std::string& flag : in_manual) {
        CAPTURE(flag);
        CHECK(in_help.count(flag) == 1);
    }
    for (const std::string& flag : in_help) {
        CAPTURE(flag);
        CHECK(in_manual.count(flag) == 1);
    }
    for (const char* letter : {"p", "b", "U", "h"}) {
        CAPTURE(letter);
        CHECK(contains(manual, std::string("Fl ") + letter));
        CHECK(contains(help_of({"serve"}), std::string("\n  -") + letter + ", --"));
    }
}

TEST_CASE("every help text has the same parts, in 80 columns") {
    std::vector<std::string> helps{help_of({})};
    for (const std::string& command : names_of_commands()) helps.push_back(help_of({command}));
    for (const std::string& help : helps) {
        CAPTURE(help);
        std::size_t at = 0;
        for (const char* part :
             {" - ", "\n\nUsage: gpunbd", "\n\n", "  -h, --help", "\n\nExamples:\n",
              "\n\nExit codes: 0 ", "\nSee also: gpunbd(8)"}) {
            CAPTURE(part);
            at = help.find(part, at);
            REQUIRE(at != std::string::npos);
        }
        std::istringstream lines(help);
        for (std::string line; std::getline(lines, line);) {
            CAPTURE(line);
            CHECK(line.size() <= 80);
        }
    }
}

TEST_CASE("the output of check fits 80 columns with any number of devices") {
    std::string text = "exports: [{devices: [host";
    for (int i = 0; i < 63; ++i) text += ", cuda:" + std::to_string(i);
    for (const Options& options : {options_of(text + "]}]"), load_file(GPUNBD_EXAMPLE).options}) {
        std::istringstream lines(to_yaml(options));
        for (std::string line; std::getline(lines, line);) {
            CAPTURE(line);
            CHECK(line.size() <= 80);
        }
    }
}

TEST_CASE("the first paragraph of gpunbd(8) says that nothing is persistent") {
    const std::string manual = page("gpunbd.8");
    const std::size_t start = manual.find(".Sh DESCRIPTION");
    const std::string paragraph = manual.substr(start, manual.find(".Pp", start) - start);
    for (const char* word : {"persistent", "FLUSH", "FUA", "complete in device memory"}) {
        CAPTURE(word);
        CHECK(contains(paragraph, word));
    }
}

// The entry of a manual that begins with `head`, without macros, as one line.
std::string entry_of(const std::string& manual, const std::string& head) {
    const std::size_t begin = manual.find(head + '\n');
    if (begin == std::string::npos) return {};
    std::istringstream lines(manual.substr(begin + head.size() + 1));
    std::string out;
    for (std::string line; std::getline(lines, line);) {
        if (line.starts_with(".It") || line.starts_with(".El")) break;
        if (line.starts_with(".")) line.erase(0, line.find(' ') + 1);
        const bool joined = line.size() == 1 && out.size() > 0;
        out += (out.empty() || joined ? "" : " ") + line;
    }
    for (const char* mark : {" .", " ,", " :"}) {
        for (std::size_t at = 0; (at = out.find(mark, at)) != std::string::npos;) out.erase(at, 1);
    }
    return out;
}

TEST_CASE("gpunbd.yaml(5) describes exactly the keys that exist, and the example shows each") {
    Words keys;
    for (const KeyText& key : all_keys()) keys.insert(key.path);
    CHECK(keys.size() > 30);
    const std::string manual = page("gpunbd.yaml.5");
    CHECK(words_after(manual, ".It Va ", key_letters) == keys);

    Words shown;
    std::ifstream example(GPUNBD_EXAMPLE);
    for (std::string line; std::getline(example, line);) {
        const std::size_t start = std::min(line.find_first_not_of(" -"), line.size());
        const std::size_t end = line.find_first_not_of(key_letters, start);
        if (end != std::string::npos && line[end] == ':')
            shown.insert(line.substr(start, end - start));
    }
    for (const std::string& key : keys) {
        CAPTURE(key);
        CHECK(shown.count(key.substr(key.find_last_of('.') + 1)) == 1);
    }
}

TEST_CASE("gpunbd(8) gives the values of the key that each flag sets") {
    const std::string manual = page("gpunbd.8");
    int checked = 0;
    const Commands commands = server::all_commands();
    for (const FlagGroup& group : find_command(commands, "serve")->groups) {
        for (const Flag& flag : group.flags) {
            if (flag.key.empty() || flag.takes.empty()) continue;
            const std::string name(flag.name.substr(1));
            const std::size_t at = manual.find("Fl " + name + " ", manual.find(".Sh OPTIONS"));
            REQUIRE(at != std::string::npos);
            const std::size_t head = manual.rfind(".It ", at);
            const std::string entry =
                entry_of(manual, manual.substr(head, manual.find('\n', at) - head));
            CAPTURE(entry);
            const KeyText& key = key_text(flag.key);
            if (!key.words.empty() || key.type == "Integer") {
                constexpr std::string_view title = "Default: ";
                CHECK(contains(entry, key.fallback.substr(title.size())));
                ++checked;
            }
            if (key.type == "Integer") CHECK(contains(entry, key.range));
        }
    }
    CHECK(checked == 8);
}

// The literal text in a section.
std::string example_in(const std::string& manual, const std::string& section) {
    const std::string start = ".Bd -literal -offset indent\n";
    const std::size_t begin = manual.find(start, manual.find(".Sh " + section)) + start.size();
    return manual.substr(begin, manual.find(".Ed", begin) - begin);
}

TEST_CASE("the examples in gpunbd.yaml(5) are valid configurations") {
    const std::string manual = page("gpunbd.yaml.5");
    CHECK(options_of(example_in(manual, "EXAMPLES")).exports.size() == 2);
    const Options spilling = options_of(example_in(manual, "GIVING MEMORY BACK"));
    REQUIRE(spilling.devices.size() == 1);
    CHECK(spilling.devices[0].spill.size() == 2);
}

}  // namespace
}  // namespace gpunbd::config
