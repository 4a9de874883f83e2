#include "server/daemon/server_context.hpp"

#include "tests/test.hpp"
#include "tests/transitions.hpp"

namespace gpunbd::server::test {
namespace {

config::ExportOptions options_named(const std::string& name) {
    config::ExportOptions options;
    options.name = name;
    return options;
}

TEST_CASE("server context: clones and templates are below their sources") {
    config::ExportOptions for_clients = options_named("template");
    for_clients.clone_per_client.of = "clone";
    config::ExportOptions clone = options_named("clone");
    clone.clone_of = "source";
    config::Options options;
    options.exports = {for_clients, clone, options_named("other"), options_named("source")};
    const ServerContext context({}, options);
    std::vector<std::string> names;
    for (const auto& each : context.options.exports) names.push_back(each.name);
    CHECK(names == std::vector<std::string>{"source", "clone", "template", "other"});
}

TEST_CASE("phases of a server: every pair of phases is a valid transition or is none") {
    using enum Phase;
    constexpr gpunbd::test::Transitions<Phase> rows[] = {
        {starting, ".x..x"},         {serving, "..xxx"},  {handing_over, ".x..x"},
        {awaiting_swapoff, "...xx"}, {draining, "....."},
    };
    gpunbd::test::check_transitions<Phase>(rows);
}

}  // namespace
}  // namespace gpunbd::server::test
