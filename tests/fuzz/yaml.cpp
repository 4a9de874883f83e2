// A configuration file with any contents: reading it gives either valid options that survive
// to_yaml(), or problems whose locations are inside of the file.
#include <algorithm>
#include <string>

#include "config/yaml_file.hpp"
#include "tests/fuzz/require.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    using namespace gpunbd::config;
    using gpunbd::fuzz::require;
    const std::string text(reinterpret_cast<const char*>(data), size);
    const Loaded loaded = load_text(text, "f");
    if (loaded.problems.empty()) {
        const Loaded again = load_text(to_yaml(loaded.options), "f");
        require(again.problems.empty(), "written options can be read");
        require(again.options == loaded.options, "written options are the same");
        return 0;
    }
    require(loaded.options == Options{}, "a file with a problem changes no option");
    const auto lines = std::count(text.begin(), text.end(), '\n') + 2;
    for (const Problem& problem : loaded.problems) {
        require(!problem.what.empty(), "a problem has a description");
        require(problem.line >= 1 && problem.line <= lines && problem.column >= 1,
                "a problem has a location");
    }
    return 0;
}
