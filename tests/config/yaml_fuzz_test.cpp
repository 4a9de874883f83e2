// Random changes of the example file, from a fixed seed. load_text() must neither crash nor throw,
// problems must have valid positions, and valid options must survive to_yaml().
#include <doctest/doctest.h>

#include <algorithm>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include "config/yaml_file.hpp"
#include "tests/config/text.hpp"

namespace gpunbd::config {
namespace {

// What a change inserts.
std::vector<std::string> all_pieces() {
    std::vector<std::string> all{": ",   "- ",           "\n", "\n  ",        "\t",   "&a ",
                                 "|\n",  ">\n",          "? ", "---\n",       "\xc3", "\xff",
                                 "\x04", "\xef\xbb\xbf", "\r", "\xe2\x80\xa8"};
    std::istringstream words(
        R"([ ] { } : *a " ' # % ! !! ... ~ null -1 0 1e9 99999 8GB 5% \ , <<: name size @ ` = )"
        R"(true cuda: exports: 64K "\x" "\ud800" !< & *)");
    for (std::string word; words >> word;) all.push_back(word);
    return all;
}

std::string mutated(std::string text, std::mt19937_64& random) {
    static const std::vector<std::string> pieces = all_pieces();
    const std::uint64_t changes = 1 + random() % 6;
    for (std::uint64_t i = 0; i < changes && !text.empty(); ++i) {
        const std::size_t at = random() % text.size();
        const std::size_t length = std::min<std::size_t>(1 + random() % 40, text.size() - at);
        switch (random() % 7) {
            case 0:
                text[at] = static_cast<char>(random() % 256);
                break;
            case 1:
                text.erase(at, length);
                break;
            case 2:
                text.insert(at, pieces[random() % pieces.size()]);
                break;
            case 3:
                text.insert(random() % text.size(), text.substr(at, length));
                break;
            case 4:
                text.resize(at);
                break;
            case 5:
                text.replace(at, 1, pieces[random() % pieces.size()]);
                break;
            case 6: {  // indentation
                const std::size_t line = text.rfind('\n', at);
                if (line != std::string::npos) text.insert(line + 1, random() % 5, ' ');
                break;
            }
        }
    }
    return text;
}

TEST_CASE("a randomly changed example gives valid options or problems") {
    // Without comments, so that the changes affect keys and values.
    std::string seed;
    std::istringstream example(slurp(GPUNBD_EXAMPLE));
    for (std::string line; std::getline(example, line);) {
        seed += line.substr(0, line.find('#')) + "\n";
    }
    REQUIRE(load_text(seed, "f").problems.empty());

    std::mt19937_64 random(10809);
    int good = 0;
    for (int i = 0; i < 6'000; ++i) {
        const std::string text = mutated(seed, random);
        CAPTURE(i);
        CAPTURE(text);
        const Loaded loaded = load_text(text, "f");
        if (loaded.problems.empty()) {
            ++good;
            const Loaded again = load_text(to_yaml(loaded.options), "f");
            REQUIRE(joined(again.problems) == "");
            REQUIRE(again.options == loaded.options);
            continue;
        }
        const auto lines = std::count(text.begin(), text.end(), '\n') + 2;
        REQUIRE(loaded.options == Options{});
        for (const Problem& problem : loaded.problems) {
            REQUIRE(problem.what != "");
            REQUIRE(problem.line >= 1);
            REQUIRE(problem.line <= lines);
            REQUIRE(problem.column >= 1);
        }
    }
    CHECK(good > 100);  // some changes keep the file valid
}

}  // namespace
}  // namespace gpunbd::config
