// The manuals, the help and the example against the program: what one of them knows, all know.
#include <doctest/doctest.h>

#include <regex>
#include <set>

#include "config/command_line.hpp"
#include "config/yaml_file.hpp"
#include "tests/config/helpers.hpp"

namespace gpunbd::config {
namespace {

using Words = std::set<std::string>;

Words matches(const std::string& text, const char* pattern) {
    Words out;
    const std::regex regex(pattern);
    for (std::sregex_iterator at(text.begin(), text.end(), regex), end; at != end; ++at) {
        out.insert((*at)[1].str());
    }
    return out;
}

std::string help_of(std::vector<const char*> arguments) {
    arguments.insert(arguments.begin(), "gpunbd");
    arguments.push_back("--help");
    return parse_command_line(static_cast<int>(arguments.size()), arguments.data()).message;
}

// Is the flag known to the command, whatever becomes of its argument?
bool is_taken(const char* command, const std::string& flag) {
    const std::string text = "--" + flag;
    const char* const arguments[] = {"gpunbd", command, text.c_str(), "x"};
    const CommandLine line = parse_command_line(4, arguments);
    return line.message.find("unknown flag") == std::string::npos;
}

TEST_CASE("gpunbd(8) and --help have the same flags, and all are taken") {
    const std::string manual = slurp(GPUNBD_CONFIG_FOLDER "/gpunbd.8");
    const Words in_manual = matches(manual, R"(Fl -([a-z][a-z-]*))");
    REQUIRE(in_manual.size() > 20);

    Words in_help = matches(help_of({}), R"(--([a-z][a-z-]*))");
    for (const char* command : {"serve", "devices", "check"}) {
        const std::string help = help_of({command});
        // Only lines that describe a flag: an example of --run may hold another program's flags.
        for (const std::string& flag : matches(help, R"(\n  (?:-[a-zA-Z], |    )--([a-z-]+))")) {
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
        CHECK(manual.find(std::string("Fl ") + letter) != std::string::npos);
        CHECK(help_of({"serve"}).find(std::string("\n  -") + letter + ", --") != std::string::npos);
    }
}

TEST_CASE("the first paragraph of gpunbd(8) says that nothing is persistent") {
    const std::string manual = slurp(GPUNBD_CONFIG_FOLDER "/gpunbd.8");
    const std::size_t start = manual.find(".Sh DESCRIPTION");
    const std::string paragraph = manual.substr(start, manual.find(".Pp", start) - start);
    for (const char* word : {"persistent", "FLUSH", "FUA", "complete in device memory"}) {
        CAPTURE(word);
        CHECK(paragraph.find(word) != std::string::npos);
    }
}

// Every key, asked of the program itself: an unknown key is answered with the known ones.
Words all_keys() {
    struct Level {
        const char* path;  // what its keys are called in the manual
        const char* text;
    };
    const Level levels[] = {
        {"", "exports: [{}]\nzzzzzzzz: 1"},
        {"listeners.", "exports: [{}]\nlisteners: {zzzzzzzz: 1}"},
        {"listeners.tcp[].", "exports: [{}]\nlisteners: {tcp: [{address: ::1, zzzzzzzz: 1}]}"},
        {"listeners.unix[].", "exports: [{}]\nlisteners: {unix: [{path: a, zzzzzzzz: 1}]}"},
        {"devices[].", "exports: [{}]\ndevices: [{id: host, zzzzzzzz: 1}]"},
        {"exports[].", "exports: [{zzzzzzzz: 1}]"},
        {"pipeline.", "exports: [{}]\npipeline: {zzzzzzzz: 1}"},
        {"limits.", "exports: [{}]\nlimits: {zzzzzzzz: 1}"},
        {"log.", "exports: [{}]\nlog: {zzzzzzzz: 1}"},
    };
    Words out;
    for (const Level& level : levels) {
        const Loaded loaded = load_text(level.text, "f");
        REQUIRE(loaded.problems.size() == 1);
        const std::string& what = loaded.problems[0].what;
        const std::string start = "unknown key; known here are ";
        REQUIRE(what.find(start) == 0);
        for (const std::string& key : matches(what.substr(start.size()), "([a-z_]+)")) {
            out.insert(level.path + key);
        }
    }
    return out;
}

TEST_CASE("gpunbd.yaml(5) describes every key and no other, the example shows each") {
    const Words keys = all_keys();
    CHECK(keys.size() > 30);
    const std::string manual = slurp(GPUNBD_CONFIG_FOLDER "/gpunbd.yaml.5");
    CHECK(matches(manual, R"(\.It Va ([^ \n]+))") == keys);

    const std::string example = slurp(GPUNBD_EXAMPLE);
    for (const std::string& key : keys) {
        const std::string leaf = key.substr(key.find_last_of('.') + 1);
        CAPTURE(key);
        CHECK(std::regex_search(example, std::regex("\n[ -]*" + leaf + ":")));
    }
}

TEST_CASE("the example in gpunbd.yaml(5) is a good configuration") {
    const std::string manual = slurp(GPUNBD_CONFIG_FOLDER "/gpunbd.yaml.5");
    const std::string start = ".Bd -literal -offset indent\n";
    const std::size_t begin = manual.find(start, manual.find(".Sh EXAMPLES")) + start.size();
    const Loaded loaded = load_text(manual.substr(begin, manual.find(".Ed", begin) - begin), "f");
    CHECK(joined(loaded.problems) == "");
    CHECK(loaded.options.exports.size() == 2);
}

}  // namespace
}  // namespace gpunbd::config
