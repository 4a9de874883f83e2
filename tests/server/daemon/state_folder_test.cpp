#include "server/daemon/state_folder.hpp"

#include <doctest/doctest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <string>

namespace gpunbd::server::test {
namespace {

struct State {
    State() { REQUIRE(::mkdtemp(path.data()) != nullptr); }
    ~State() { std::filesystem::remove_all(path); }
    std::string first_problem() const {
        const auto read = folder.read();
        return read.problems.empty() ? "" : read.problems.front().text().substr(path.size());
    }
    void put(const std::string& file, const std::string& text) const {
        std::ofstream(path + "/" + file) << text;
    }
    std::string path = "/tmp/gpunbd-state-XXXXXX";
    StateFolder folder{path};
};

TEST_CASE("state folder: the names of files") {
    CHECK(StateFolder::file_name("fast-1_a.b") == "fast-1_a.b.yaml");
    CHECK(StateFolder::file_name("a/b") == "a%2Fb.yaml");
    CHECK(StateFolder::file_name(".hidden") == "%2Ehidden.yaml");
    CHECK(StateFolder::file_name("%") == "%25.yaml");
    CHECK(StateFolder::file_name("\xc3\xa4") == "%C3%A4.yaml");
}

TEST_CASE("state folder: exports are read as they were written, until they are removed") {
    State state;
    const StateFolder folder(state.path + "/new");
    CHECK(folder.read().problems.empty());  // creates it
    config::ExportOptions options;
    options.name = "a/b 'c'";
    options.size = config::Size{.bytes = 1 << 20};
    options.read_only = true;
    options.rates.iops = 7;
    CHECK(folder.write(options) == "");
    options.max_connections = 3;
    CHECK(folder.write(options) == "");
    const auto read = folder.read();
    CHECK(read.problems.empty());
    REQUIRE(read.exports.size() == 1);
    CHECK(read.exports[0] == options);
    CHECK(read.exports[0].origin.persistent);
    CHECK(folder.remove(options.name) == "");
    CHECK(folder.remove(options.name) == "");
    CHECK(folder.read().exports.empty());
    options.name = std::string(300, 'x');
    CHECK(folder.write(options).find("its name is too long") == 0);
}

TEST_CASE("state folder: problems have the file, the line and the key") {
    State state;
    state.folder = StateFolder(state.path);
    state.put(".draft.yaml.new", "{");
    state.put("other.txt", "{");
    CHECK(state.first_problem() == "");
    state.put("a.yaml", "name: a\nsize: 1000\n");
    CHECK(state.first_problem().find("/a.yaml:2:7: size: '1000' is not a multiple of 512") == 0);
    state.put("a.yaml", "name: b\nsize: 1M\n");
    CHECK(state.first_problem() ==
          "/a.yaml: name: 'b' belongs in the file b.yaml; rename the file, or correct the name");
    std::filesystem::permissions(state.path, std::filesystem::perms::others_write,
                                 std::filesystem::perm_options::add);
    CHECK(state.first_problem().find(": has mode 0702, so that other users may add exports") == 0);
}

}  // namespace
}  // namespace gpunbd::server::test
