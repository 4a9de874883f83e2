// Handshakes that wait for an export that has to be made first.
#include <doctest/doctest.h>

#include <string>

#include "tests/protocol/handshake.hpp"
#include "tests/protocol/plain_export_directory.hpp"

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
    Negotiation negotiation{exports};
    Bytes output;

    // Feeds these bytes and returns the result; the bytes to send are then in `output`.
    Next feed(const Bytes& bytes) {
        output.clear();
        std::size_t used = 0;
        return feed_all(negotiation, bytes, used, output);
    }
    Next begin(const Bytes& opening) { return feed(joined({wire::client_flags(), opening})); }
};

TEST_CASE("waiting: GO and EXPORT_NAME are answered when the export has been made") {
    for (const Bytes& opening :
         {option(opt::go, info_data("disk")), option(opt::export_name, text_bytes("disk"))}) {
        Waiting client;
        CHECK(client.begin(opening) == Next::wait);
        CHECK(client.output.empty());
        client.exports.is_made = true;
        CHECK(client.feed({}) == Next::transmit);
        CHECK(client.negotiation.negotiated().export_info.name == "disk");
        const Bytes whole = joined({wire::client_flags(), opening});
        CHECK(to_hex(client.output) == to_hex(run(PlainExportDirectory(), whole).output));
    }
}

TEST_CASE("waiting: other options and other exports do not") {
    Waiting client;
    CHECK(client.begin(option(opt::info, info_data("disk"))) == Next::receive);
    CHECK(client.feed(option(opt::go, info_data("ro"))) == Next::transmit);
}

TEST_CASE("waiting: an export that cannot be made is refused, and the client may continue") {
    Waiting client;
    CHECK(client.begin(option(opt::go, info_data("disk"))) == Next::wait);
    client.exports.is_made = true;
    client.exports.refusal = "there are too many";
    CHECK(client.feed({}) == Next::receive);
    REQUIRE(answers(client.output).size() == 1);
    CHECK(answers(client.output)[0].type == policy);
    client.exports.refusal = {};
    CHECK(client.feed(option(opt::go, info_data("ro"))) == Next::transmit);
}

TEST_CASE("waiting: a server that shuts down meanwhile says so") {
    Waiting client;
    CHECK(client.begin(option(opt::go, info_data("disk"))) == Next::wait);
    client.negotiation.shut_down();
    CHECK(client.feed({}) == Next::receive);
    REQUIRE(answers(client.output).size() == 1);
    CHECK(answers(client.output)[0].type == shutdown);
}

}  // namespace
}  // namespace gpunbd::protocol::test
