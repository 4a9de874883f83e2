// To a client without access, an export does not exist: every option returns the same bytes as for
// an unknown name.
#include "server/exports/offered_exports.hpp"

#include "config/client_clones.hpp"
#include "config/rules.hpp"
#include "tests/protocol/handshake.hpp"
#include "tests/test.hpp"

namespace gpunbd::server::test {
namespace {

namespace opt = protocol::test::opt;
using protocol::test::Bytes;
using protocol::test::info_data;
using protocol::test::joined;
using protocol::test::meta_data;
using protocol::test::option;
using protocol::test::Outcome;
using protocol::test::text_bytes;

config::AccessRule network_rule(const char* network, config::AccessMode mode = {}) {
    config::AccessRule out;
    out.network = std::get<config::Network>(config::rules::network(network));
    out.mode = mode;
    return out;
}

std::shared_ptr<Export> export_of(const std::string& name,
                                  const std::vector<config::AccessRule>& rules = {}) {
    auto made = std::make_shared<Export>();
    made->info = {.name = name, .size = 1 << 20};
    made->options.access = rules;
    made->access = AccessList(rules);
    return made;
}

Peer peer_at(const std::string& address) {
    Peer peer;
    peer.kind = Peer::Kind::tcp;
    peer.address = address;
    return peer;
}

std::vector<std::string> names(const protocol::ExportDirectory& exports) {
    std::vector<std::string> out;
    protocol::Listing listing = exports.list();
    while (const auto info = exports.next(listing)) out.push_back(info->name);
    return out;
}

// Every option that names an export, encoded separately.
struct AskingOption {
    const char* name;
    Bytes (*bytes)(const std::string& export_name);
};
const AskingOption askings[] = {
    {"EXPORT_NAME",
     [](const std::string& name) { return option(opt::export_name, text_bytes(name)); }},
    {"INFO",
     [](const std::string& name) {
         return option(opt::info, info_data(name, {1, 2, 3}));
     }},
    {"GO",
     [](const std::string& name) {
         return option(opt::go, info_data(name, {1, 2, 3}));
     }},
    {"LIST_META_CONTEXT",
     [](const std::string& name) { return option(opt::list_meta, meta_data(name, {"base:"})); }},
    {"SET_META_CONTEXT",
     [](const std::string& name) {
         return joined({option(opt::structured),
                        option(opt::set_meta, meta_data(name, {"base:allocation"}))});
     }},
};

Outcome ask(const protocol::ExportDirectory& exports, const Bytes& options) {
    return protocol::test::run(exports, joined({protocol::wire::client_flags(), options}));
}

TEST_CASE("offered: an export without access is not listed, and looks like an unknown one") {
    ExportRegistry registry;
    registry.replace({export_of("secret", {network_rule("10.0.0.0/8")}), export_of("shared")});
    const Peer stranger = peer_at("192.0.2.1");
    const OfferedExports exports(registry, stranger);
    CHECK(names(exports) == std::vector<std::string>{"shared"});
    ExportRegistry without;
    without.replace({export_of("shared")});
    const OfferedExports nothing_hidden(without, stranger);
    CHECK(ask(exports, option(opt::list)).output == ask(nothing_hidden, option(opt::list)).output);
    for (const AskingOption& asking : askings) {
        CAPTURE(asking.name);
        const Outcome absent = ask(exports, asking.bytes("absent"));
        for (const char* name :
             {"secret", ""}) {  // the default export is the first, which is hidden
            CAPTURE(name);
            const Outcome denied = ask(exports, asking.bytes(name));
            CHECK(denied.output == absent.output);
            CHECK(denied.next == absent.next);
            CHECK(denied.used - std::string(name).size() == absent.used - 6);
            CHECK(denied.reason == absent.reason);
        }
        CHECK_FALSE(exports.find("secret").has_value());
        // The bytes sent to an unauthorised client do not contain the name.
        CHECK(absent.next != protocol::Negotiation::Next::transmit);
        const Outcome shared = ask(OfferedExports(registry, stranger), asking.bytes("shared"));
        CHECK((shared.output.size() != absent.output.size() || shared.next != absent.next));
    }
}

TEST_CASE("offered: the log names the reason that the client does not get") {
    ExportRegistry registry;
    registry.replace({export_of("secret", {network_rule("10.0.0.0/8"), network_rule("::1")}),
                      export_of("shared")});
    const Peer stranger = peer_at("192.0.2.1");
    const OfferedExports exports(registry, stranger);
    CHECK(ask(exports, option(opt::go, info_data("secret"))).asked.words ==
          "asked for export 'secret', which it may not open (none of its 2 rules matches); "
          "offered: 'shared'");
    CHECK(ask(exports, option(opt::go, info_data("absent"))).asked.words ==
          "asked for export 'absent', which is not offered; offered: 'shared'");
    CHECK(ask(exports, option(opt::go, info_data(""))).asked.words ==
          "asked for the default export, which it may not open (none of its 2 rules matches); "
          "offered: 'shared'");
}

TEST_CASE("offered: an export is visible to the clients that its rules match") {
    ExportRegistry registry;
    registry.replace({export_of("a", {network_rule("10.0.0.0/8")}),
                      export_of("b", {network_rule("10.1.0.0/16", config::AccessMode::read_only)}),
                      export_of("c", {network_rule("2001:db8::/32")}), export_of("d")});
    const std::pair<const char*, std::vector<std::string>> rows[] = {
        {"10.2.0.1", {"a", "d"}},        {"10.1.0.1", {"a", "b", "d"}}, {"2001:db8::1", {"c", "d"}},
        {"::ffff:10.2.0.1", {"a", "d"}}, {"192.0.2.1", {"d"}},          {"not an address", {"d"}},
    };
    for (const auto& [address, expected] : rows) {
        CAPTURE(address);
        const Peer peer = peer_at(address);
        CHECK(names(OfferedExports(registry, peer)) == expected);
    }
    // The default export is the first of the file if the client may open it; otherwise there is
    // none.
    const Peer first = peer_at("10.2.0.1");
    CHECK(OfferedExports(registry, first).find("")->name == "a");
    const Peer second = peer_at("192.0.2.1");
    CHECK_FALSE(OfferedExports(registry, second).find("").has_value());
    // An export with the empty name has precedence as the default, at any position.
    registry.replace({export_of("a"), export_of("", {network_rule("10.0.0.0/8")})});
    CHECK(OfferedExports(registry, first).find("")->name.empty());
    CHECK_FALSE(OfferedExports(registry, second).find("").has_value());
    CHECK(names(OfferedExports(registry, second)) == std::vector<std::string>{"a"});
}

TEST_CASE("offered: a rule may make an export read-only, but never writable") {
    ExportRegistry registry;
    auto image = export_of("image", {network_rule("10.0.0.0/8")});
    image->info.read_only = true;
    registry.replace({export_of("a", {network_rule("10.1.0.0/16"),
                                      network_rule("10.0.0.0/8", config::AccessMode::read_only)}),
                      image});
    const Peer writer = peer_at("10.1.0.1");
    const Peer reader = peer_at("10.2.0.1");
    CHECK_FALSE(OfferedExports(registry, writer).find("a")->read_only);
    CHECK(OfferedExports(registry, reader).find("a")->read_only);
    const OfferedExports read(registry, reader);
    protocol::Listing listing = read.list();
    CHECK(read.next(listing)->read_only);
    CHECK(OfferedExports(registry, writer).find("image")->read_only);
    const Outcome went = ask(OfferedExports(registry, reader), option(opt::go, info_data("a")));
    CHECK(went.negotiated.export_info.read_only);
}

TEST_CASE("offered: an identity proven in TLS takes effect immediately") {
    ExportRegistry registry;
    config::AccessRule named;
    named.tls_name = "client.example.com";
    registry.replace({export_of("a", {named})});
    Peer peer = peer_at("10.0.0.1");
    const OfferedExports exports(registry, peer);
    CHECK(names(exports).empty());
    peer.tls = TlsIdentity{.names = {"client.example.com"}, .psk_user = {}};
    CHECK(names(exports) == std::vector<std::string>{"a"});
}

TEST_CASE("offered: a full export is refused with a reason, or hidden without access") {
    ExportRegistry registry;
    auto full = export_of("full", {network_rule("10.0.0.0/8")});
    full->options.max_connections = 1;
    registry.replace({full});
    const Peer peer = peer_at("10.0.0.1");
    const Peer stranger = peer_at("192.0.2.1");
    OfferedExports exports(registry, peer);
    const Bytes go = option(opt::go, info_data("full"));
    CHECK(ask(exports, go).next == protocol::Negotiation::Next::transmit);
    const auto lease = exports.take_lease();
    REQUIRE(lease != nullptr);
    const auto answers = protocol::test::answers(ask(exports, go).output);
    REQUIRE(answers.size() == 1);
    CHECK(answers[0].type == (1U << 31) + 2);  // ERR_POLICY
    CHECK(answers[0].data == text_bytes("the export has 1 connection, which is its limit"));
    CHECK(exports.take_lease() == nullptr);
    // INFO takes no lease.
    CHECK(protocol::test::answers(ask(exports, option(opt::info, info_data("full"))).output)
              .back()
              .type == 1);
    const Outcome closed = ask(exports, option(opt::export_name, text_bytes("full")));
    CHECK(closed.next == protocol::Negotiation::Next::close);
    CHECK(closed.output.empty());
    CHECK(closed.reason == "EXPORT_NAME: the export has 1 connection, which is its limit");
    const OfferedExports others(registry, stranger);
    CHECK(ask(others, go).output == ask(others, option(opt::go, info_data("absent"))).output);
}

TEST_CASE("offered: a listing continues across a reload, and keeps no export alive") {
    ExportRegistry registry;
    const auto all = [](std::initializer_list<const char*> wanted) {
        ExportRegistry::Exports made;
        for (const char* const name : wanted) made.push_back(export_of(name, {}));
        return made;
    };
    registry.replace(all({"a", "b", "c", "d"}));
    const std::weak_ptr<const Export> removed = registry.find("b");
    const Peer anybody;
    const OfferedExports exports(registry, anybody);
    protocol::Listing listing = exports.list();
    CHECK(exports.next(listing)->name == "a");
    registry.replace(all({"e", "d", "a", "c"}));
    CHECK(removed.expired());
    CHECK(registry.find("b") == nullptr);
    CHECK(exports.next(listing)->name == "c");
    CHECK(exports.next(listing)->name == "d");
    CHECK_FALSE(exports.next(listing).has_value());
    CHECK_FALSE(exports.next(listing).has_value());
    CHECK(names(exports) == std::vector<std::string>{"e", "d", "a", "c"});
}

ExportTemplates node_template(config::ClientId id, std::vector<config::AccessRule> access = {}) {
    config::ExportOptions options;
    options.name = "node";
    options.clone_per_client.of = "base";
    options.clone_per_client.size = 4 << 20;
    options.clone_per_client.name = id;
    options.access = std::move(access);
    return templates_in({options});
}

std::shared_ptr<Export> clone_for(const ExportTemplates& its_template, const char* client) {
    const config::ExportOptions options =
        config::options_of_clone(its_template.front()->options, client);
    auto made = export_of(options.name, options.access);
    made->options = options;
    return made;
}

TEST_CASE("offered: a template leads each client to a clone of its own") {
    ExportRegistry registry;
    const ExportTemplates node = node_template(config::ClientId::address);
    registry.replace({export_of("base")}, node);
    const Peer one = peer_at("10.0.0.1");
    const Peer other = peer_at("::ffff:10.0.0.2");
    OfferedExports exports(registry, one);
    CHECK(names(exports) == std::vector<std::string>{"base", "node"});
    CHECK(exports.find("node")->size == 4 << 20);
    CHECK_FALSE(exports.ready("node"));
    const CloneRequest request = exports.take_clone_request();
    CHECK(request.template_name == "node");
    CHECK(request.client == "10.0.0.1");
    registry.replace({export_of("base"), clone_for(node, "10.0.0.1")}, node);
    exports.clone_answered("");
    CHECK(exports.ready("node"));
    CHECK(exports.find("node")->name == "node/10.0.0.1");
    CHECK(exports.open("node").exported == registry.find("node/10.0.0.1"));
    CHECK(names(exports) == std::vector<std::string>{"base", "node"});
    OfferedExports others(registry, other);
    CHECK_FALSE(others.find("node/10.0.0.1").has_value());
    CHECK(others.find("node")->name == "node");
    CHECK_FALSE(others.ready("node"));
    CHECK(others.take_clone_request().client == "10.0.0.2");
}

TEST_CASE("offered: a template is refused to clients without its kind of identity") {
    ExportRegistry registry;
    Peer peer;
    peer.kind = Peer::Kind::unix_socket;
    OfferedExports exports(registry, peer);
    registry.replace({export_of("base")}, node_template(config::ClientId::address));
    CHECK(exports.ready("node"));
    CHECK(exports.enter("node") == "this export has a clone for each IP address: connect by TCP");
    registry.replace({export_of("base")}, node_template(config::ClientId::tls_name));
    CHECK(exports.ready("node"));
    CHECK(contains(exports.enter("node"), "certificate"));
    peer.tls = TlsIdentity{.names = {"a name"}, .psk_user = {}};
    CHECK(exports.ready("node"));
    CHECK(contains(exports.enter("node"), "certificate"));
    peer.tls->names = {"Node-1", "other"};
    CHECK_FALSE(exports.ready("node"));
    CHECK(exports.take_clone_request().client == "node-1");
}

TEST_CASE("offered: a template without access, or without its base, does not exist") {
    ExportRegistry registry;
    const ExportTemplates node =
        node_template(config::ClientId::machine, {network_rule("10.0.0.0/8")});
    registry.replace({export_of("base")}, node);
    const Peer stranger = peer_at("192.0.2.1");
    const OfferedExports hidden(registry, stranger);
    CHECK(hidden.ready("node/a"));
    const Peer known = peer_at("10.0.0.1");
    const OfferedExports exports(registry, known);
    CHECK_FALSE(exports.ready("node/a"));
    CHECK(exports.find("node/a").has_value());
    CHECK_FALSE(exports.find("node").has_value());
    CHECK(names(exports) == std::vector<std::string>{"base"});
    for (const AskingOption& asking : askings) {
        CAPTURE(asking.name);
        const Outcome denied = ask(hidden, asking.bytes("node/a"));
        const Outcome absent = ask(hidden, asking.bytes("absent"));
        CHECK(denied.output == absent.output);
        CHECK(denied.next == absent.next);
    }
    registry.replace({export_of("other")}, node);
    CHECK_FALSE(exports.find("node/a").has_value());
}

}  // namespace
}  // namespace gpunbd::server::test
