#include "config/client_clones.hpp"

#include "config/rules.hpp"
#include "tests/test.hpp"

namespace gpunbd::config::test {
namespace {

AccessRule network_rule(const char* network, AccessMode mode = AccessMode::read_write) {
    AccessRule rule;
    rule.network = std::get<Network>(rules::network(network));
    rule.mode = mode;
    return rule;
}

AccessRule tls_rule(const char* name) {
    AccessRule rule;
    rule.tls_name = name;
    return rule;
}

AccessRule user_rule() {
    AccessRule rule;
    rule.uid = Account{0, "root"};
    return rule;
}

ExportOptions node(ClientId id, std::vector<AccessRule> access = {}) {
    ExportOptions out;
    out.name = "node";
    out.description = "a root";
    out.clone_per_client.of = "debian";
    out.clone_per_client.size = 8 * GiB;
    out.clone_per_client.name = id;
    out.access = std::move(access);
    return out;
}

TEST_CASE("client clones: a clone has the options of its template") {
    const ExportOptions clone = options_of_clone(node(ClientId::machine, {user_rule()}), "7c2f");
    CHECK(clone.name == "node/7c2f");
    CHECK(clone.description == "a root");
    CHECK(clone.clone_of == "debian");
    CHECK(clone.size == Size{.bytes = 8 * GiB});
    CHECK_FALSE(clone.is_template());
    CHECK(clone.access == std::vector{user_rule()});
    CHECK(clone.provenance.run_time);
    CHECK(clone.provenance.made_by == "node");
}

TEST_CASE("client clones: the access rules are restricted to the client") {
    AccessRule everywhere = network_rule("10.1.0.0/16", AccessMode::read_only);
    everywhere.tls_name = "Node-1";
    AccessRule both = network_rule("10.1.0.11", AccessMode::read_only);
    both.tls_name = "Node-1";
    AccessRule in_lower_case = everywhere;
    in_lower_case.tls_name = "node-1";
    AccessRule of_user = user_rule();
    of_user.tls_name = "node-1";
    AccessRule key;
    key.psk_user = "alice";
    AccessRule unreachable;
    unreachable.network = Network{};
    unreachable.cid = 0;
    const struct {
        const char* name;
        ClientId id;
        const char* client;
        std::vector<AccessRule> access;
        std::vector<AccessRule> expected;
    } rows[] = {
        {"no rules", ClientId::address, "10.1.0.11", {}, {network_rule("10.1.0.11")}},
        {"IPv6", ClientId::address, "fd00::1", {}, {network_rule("fd00::1")}},
        {"networks",
         ClientId::address,
         "10.1.0.11",
         {user_rule(), network_rule("10.2.0.0/16"), everywhere, network_rule("10.0.0.0/8")},
         {user_rule(), both, network_rule("10.1.0.11")}},
        {"nothing is left",
         ClientId::address,
         "10.1.0.11",
         {network_rule("10.2.0.0/16")},
         {unreachable}},
        {"no rules", ClientId::tls_name, "node-1", {}, {tls_rule("node-1")}},
        {"names",
         ClientId::tls_name,
         "node-1",
         {tls_rule("node-2"), everywhere, key, user_rule()},
         {in_lower_case, of_user}},
        {"machines prove nothing", ClientId::machine, "7c2f", {everywhere}, {everywhere}},
    };
    for (const auto& row : rows) {
        CAPTURE(row.name);
        CAPTURE(row.client);
        CHECK(options_of_clone(node(row.id, row.access), row.client).access == row.expected);
    }
}

TEST_CASE("client clones: which names are those of machines") {
    const ExportOptions machines = node(ClientId::machine);
    CHECK(machine_of(machines, "node/7c:2f") == "7c:2f");
    for (const char* name : {"node", "node/", "nodes/a", "node/a/b", "node/.", "node/a b"}) {
        CAPTURE(name);
        CHECK_FALSE(machine_of(machines, name).has_value());
    }
    CHECK_FALSE(machine_of(machines, "node/" + std::string(65, 'a')).has_value());
    CHECK_FALSE(machine_of(node(ClientId::address), "node/7c2f").has_value());
}

TEST_CASE("client clones: an existing clone follows its template, but keeps its contents") {
    ExportOptions clone = options_of_clone(node(ClientId::address), "10.1.0.11");
    clone.provenance.peer = "10.1.0.11";
    clone.keep = true;
    ExportOptions changed = node(ClientId::address, {network_rule("10.1.0.0/16")});
    changed.clone_per_client.of = "next";
    changed.clone_per_client.size = 16 * GiB;
    changed.max_connections = 3;
    const ExportOptions updated = updated_clone(clone, changed);
    CHECK(updated.clone_of == "debian");
    CHECK(updated.size == Size{.bytes = 8 * GiB});
    CHECK(updated.keep);
    CHECK(updated.max_connections == 3);
    CHECK(updated.provenance.peer == "10.1.0.11");
    changed.clone_per_client.name = ClientId::machine;
    CHECK(updated_clone(clone, changed) == clone);
}

}  // namespace
}  // namespace gpunbd::config::test
