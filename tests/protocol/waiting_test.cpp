// Handshakes that wait for an export that has to be made first.
#include "tests/protocol/handshake.hpp"
#include "tests/protocol/plain_export_directory.hpp"
#include "tests/test.hpp"

namespace gpunbd::protocol::test {
namespace {

// Like PlainExportDirectory, but "disk" has to be made, or cannot be made.
class UnmadeDisk final : public PlainExportDirectory {
 public:
    bool ready(std::string_view name) const override { return name != "disk" || is_made; }
    std::string enter(std::string_view) const override { return refusal; }

    bool is_made = false;
    std::string refusal;
};

struct Waiting {
    UnmadeDisk exports;
    Talk talk{exports};
};

TEST_CASE("waiting: GO and EXPORT_NAME are answered when the export has been made") {
    for (const Bytes& opening :
         {option(opt::go, info_data("disk")), option(opt::export_name, text_bytes("disk"))}) {
        Waiting client;
        CHECK(client.talk.say(opening) == Next::wait);
        CHECK(client.talk.output.empty());
        client.exports.is_made = true;
        CHECK(client.talk.say({}) == Next::transmit);
        CHECK(client.talk.negotiation.negotiated().export_info.name == "disk");
        const Bytes whole = joined({wire::client_flags(), opening});
        CHECK(to_hex(client.talk.output) == to_hex(run(PlainExportDirectory(), whole).output));
    }
}

TEST_CASE("waiting: other options and other exports do not") {
    Waiting client;
    CHECK(client.talk.say(option(opt::info, info_data("disk"))) == Next::receive);
    CHECK(client.talk.say(option(opt::go, info_data("ro"))) == Next::transmit);
}

TEST_CASE("waiting: an export that cannot be made is refused, and the client may continue") {
    Waiting client;
    CHECK(client.talk.say(option(opt::go, info_data("disk"))) == Next::wait);
    client.exports.is_made = true;
    client.exports.refusal = "there are too many";
    CHECK(client.talk.say({}) == Next::receive);
    REQUIRE(answers(client.talk.output).size() == 1);
    CHECK(answers(client.talk.output)[0].type == policy);
    client.exports.refusal = {};
    CHECK(client.talk.say(option(opt::go, info_data("ro"))) == Next::transmit);
}

TEST_CASE("waiting: a server that shuts down meanwhile says so") {
    Waiting client;
    CHECK(client.talk.say(option(opt::go, info_data("disk"))) == Next::wait);
    client.talk.negotiation.shut_down();
    CHECK(client.talk.say({}) == Next::receive);
    REQUIRE(answers(client.talk.output).size() == 1);
    CHECK(answers(client.talk.output)[0].type == shutdown);
}

}  // namespace
}  // namespace gpunbd::protocol::test
