#include "server/daemon/state_folder.hpp"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>

#include "config/rules.hpp"
#include "tests/temporary_folder.hpp"
#include "tests/test.hpp"

namespace gpunbd::server::test {
namespace {

struct State : gpunbd::test::TemporaryFolder {
    std::string first_problem() const {
        const auto read = folder.read();
        return read.problems.empty() ? "" : read.problems.front().text().substr(path().size());
    }
    StateFolder folder{path()};
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
    const StateFolder folder(state.path("new"));
    CHECK(folder.read().problems.empty());  // creates it
    config::ExportOptions options;
    options.name = "a/b 'c'";
    options.size = config::Size{.bytes = 1 << 20};
    options.read_only = true;
    options.rates.iops = 7;
    CHECK(folder.write(options).has_value());
    options.max_connections = 3;
    CHECK(folder.write(options).has_value());
    const auto read = folder.read();
    CHECK(read.problems.empty());
    REQUIRE(read.exports.size() == 1);
    CHECK(read.exports[0] == options);
    CHECK(read.exports[0].provenance.persistent);
    CHECK(folder.remove(options.name).has_value());
    CHECK(folder.remove(options.name).has_value());
    CHECK(folder.read().exports.empty());
    options.name = std::string(300, 'x');
    CHECK(folder.write(options).error().starts_with("its name is too long"));
}

TEST_CASE("state folder: a renamed export has one file, whenever the server is killed") {
    const State state;
    config::ExportOptions one;
    one.name = "one";
    one.size = config::Size{.bytes = 1 << 20};
    one.provenance.created = 7;
    REQUIRE(state.folder.write(one).has_value());
    config::ExportOptions two = one;
    two.name = "two";
    two.provenance.renamed_contents = "abc";
    const auto check_two = [&] {
        const auto read = state.folder.read();
        CHECK(read.problems.empty());
        REQUIRE(read.exports.size() == 1);
        CHECK(read.exports[0] == two);
        CHECK(read.exports[0].provenance.created == 7);
        CHECK(read.exports[0].provenance.renamed_contents == "abc");
    };
    CHECK(state.folder.rename(one, two).has_value());
    check_two();
    // Killed between its two steps.
    std::filesystem::rename(state.path("two.yaml"), state.path("one.yaml"));
    check_two();
    CHECK(std::filesystem::exists(state.path("two.yaml")));
    CHECK(state.folder.remove("two").has_value());
    CHECK(state.folder.read().exports.empty());
    // A copy of the file is a mistake, and not the result of a kill.
    REQUIRE(state.folder.write(one).has_value());
    REQUIRE(state.folder.rename(one, two).has_value());
    std::filesystem::copy(state.path("two.yaml"), state.path("one.yaml"));
    CHECK(state.first_problem().starts_with("/one.yaml: name: 'two' belongs in the file two.yaml"));
    std::filesystem::remove(state.path("one.yaml"));
    // What fails changes nothing.
    config::ExportOptions three = two;
    three.name = std::string(300, 'x');
    CHECK(state.folder.rename(two, three).error().starts_with("its name is too long"));
    three.name = "three";
    std::filesystem::create_directory(state.path("three.yaml"));
    CHECK(state.folder.rename(two, three).error().starts_with("the state folder "));
    std::filesystem::remove(state.path("three.yaml"));
    check_two();
}

TEST_CASE("state folder: problems have the file, the line and the key") {
    const State state;
    state.write(".draft.yaml.new", "{");
    state.write("other.txt", "{");
    CHECK(state.first_problem() == "");
    state.write("a.yaml", "name: a\nsize: 1000\n");
    CHECK(state.first_problem().starts_with("/a.yaml:2:7: size: '1000' is not a multiple of 512"));
    state.write("a.yaml", "name: b\nsize: 1M\n");
    CHECK(state.first_problem() ==
          "/a.yaml: name: 'b' belongs in the file b.yaml; rename the file, or correct the name");
}

TEST_CASE("state folder: only files that no other user may change are read") {
    const State state;
    const std::string file = state.path("a.yaml");
    const auto problem_without_remedy = [&] {
        const std::string problem = state.first_problem();
        return problem.substr(0, problem.find(", so"));
    };
    state.write("a.yaml", "name: a\nsize: 1M\n");
    for (const auto& [path, name, modes] :
         {std::tuple{state.path(), "", std::pair{0702, 0700}}, {file, "/a.yaml", {0620, 0600}}}) {
        REQUIRE(::chmod(path.c_str(), static_cast<mode_t>(modes.first)) == 0);
        CHECK(problem_without_remedy() == fmt::format("{}: has mode {:04o}", name, modes.first));
        REQUIRE(::chmod(path.c_str(), static_cast<mode_t>(modes.second)) == 0);
        CHECK(state.first_problem() == "");
        if (::geteuid() != 0) continue;
        REQUIRE(::chown(path.c_str(), 65534, 65534) == 0);
        CHECK(problem_without_remedy() ==
              fmt::format("{}: belongs to another user (uid 65534)", name));
        REQUIRE(::chown(path.c_str(), 0, 0) == 0);
    }
    const auto check_irregular = [&] {
        CHECK(state.first_problem() == "/a.yaml: is not a regular file; remove it");
        std::filesystem::remove(file);
    };
    std::filesystem::rename(file, state.path("other"));
    std::filesystem::create_symlink("other", file);
    check_irregular();
    REQUIRE(::mkfifo(file.c_str(), 0600) == 0);
    check_irregular();
    std::filesystem::create_directory(file);
    check_irregular();
}

TEST_CASE("state folder: there are no more exports than a server can have") {
    const State state;
    config::Options options;
    options.state = state.path();
    for (std::size_t i = 0; i != config::rules::max_exports; ++i) {
        options.exports.emplace_back().name = fmt::format("e{}", i);
    }
    CHECK(add_persistent_exports(options).empty());
    state.write("one.yaml", "name: one\nsize: 1M\n");
    const auto problems = add_persistent_exports(options);
    REQUIRE(problems.size() == 1);
    CHECK(problems[0].what ==
          "its 1 exports and the 4096 of the configuration are more than a "
          "server can have (4096); remove some");
    for (std::size_t i = 0; i <= config::rules::max_exports; ++i) {
        state.write(fmt::format("e{}.yaml", i), "");
    }
    CHECK(state.first_problem() ==
          ": has 4098 exports, more than a server can have (4096); remove some of its files");
}

}  // namespace
}  // namespace gpunbd::server::test
