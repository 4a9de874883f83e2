// Sessions that wait for a clone that another thread makes.
#include "server/nbd/session.hpp"

#include "server/exports/export_registry.hpp"
#include "tests/server/client.hpp"
#include "tests/server/rig.hpp"
#include "tests/test.hpp"

namespace gpunbd::server::test {
namespace {

constexpr std::uint32_t refused_by_policy = (1U << 31) + 2;

// A rig with an export "node", which makes clones of the rig's export.
struct TemplateRig : Rig {
    TemplateRig() {
        config::ExportOptions options;
        options.name = "node";
        options.clone_per_client.of = "base";
        options.clone_per_client.name = config::ClientId::machine;
        its_template = templates_in({options});
        offer({make_export("base", 1 << 20)});
        exports.clone_requests().set_receiver(
            [this](CloneRequest request) { requested.set_value(std::move(request)); });
    }
    ~TemplateRig() { exports.clone_requests().set_receiver({}); }
    void offer(ExportRegistry::Exports all) { exports.replace(std::move(all), its_template); }
    // A client that opens the clone. Its session waits for the clone.
    Client waiting() {
        const Handshake handshake{.name = "node/7c2f"};
        Client client = connect(handshake);
        client.send_bytes(handshake_bytes(handshake));
        request = requested.get_future().get();
        return client;
    }
    void add_clone() {
        auto clone = std::make_shared<Export>(*make_export("node/7c2f", 1 << 20));
        clone->options.provenance.made_by = "node";
        offer({exports.find("base"), clone});
    }

    // `sent`: the client has sent its handshake.
    void check_refused(Client& client, bool sent) {
        CHECK(client.shake_hands(sent) == refused_by_policy);
        client.close();
        check_over();
    }

    ExportTemplates its_template;
    std::promise<CloneRequest> requested;
    std::optional<CloneRequest> request;
};

TEST_CASE("clone wait: the client opens the clone when it has been made") {
    TemplateRig rig;
    Client client = rig.waiting();
    CHECK(rig.request->template_name == "node");
    CHECK(rig.request->client == "7c2f");
    rig.add_clone();
    rig.request->answer("");
    CHECK(client.shake_hands(true) == 0);
    rig.check_over(client);
}

TEST_CASE("clone wait: the client is refused if the clone is not made, or is gone again") {
    for (const char* why_not : {"there are too many", "", "the request is dropped"}) {
        TemplateRig rig;
        Client client = rig.waiting();
        if (why_not == std::string_view("the request is dropped")) {
            rig.request.reset();
        } else {
            rig.request->answer(why_not);
        }
        rig.check_refused(client, true);
    }
}

TEST_CASE("clone wait: without a receiver of requests the client is refused at once") {
    TemplateRig rig;
    rig.exports.clone_requests().set_receiver({});
    Client client = rig.connect({.name = "node/7c2f"});
    rig.check_refused(client, false);
}

TEST_CASE("clone wait: the session may end first") {
    TemplateRig rig;
    Client client = rig.waiting();
    rig.worker.cut_sessions();
    CHECK_FALSE(client.shake_hands(true).has_value());
    rig.check_over();
    rig.request->answer("");
}

TEST_CASE("clone wait: the worker may end first") {
    std::optional<CloneRequest> request;
    {
        TemplateRig rig;
        static_cast<void>(rig.waiting());
        request = std::move(rig.request);
    }
    request->answer("");
}

}  // namespace
}  // namespace gpunbd::server::test
