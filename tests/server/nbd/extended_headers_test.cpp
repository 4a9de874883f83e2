// Sessions with extended headers: lengths beyond 4 GiB, payloads of commands other than WRITE, and
// protocol violations.
#include "tests/server/rig.hpp"
#include "tests/test.hpp"

namespace gpunbd::server::test {
namespace {

namespace flag = protocol::command_flag;

constexpr std::uint64_t gib = std::uint64_t{1} << 30;
const Handshake extended{.extended = true};
constexpr std::uint32_t hole = protocol::state_hole | protocol::state_zero;

RigOptions large() { return {.devices = "h", .page_size = 2 * mib, .size = 10 * gib + 5000}; }

TEST_CASE("extended headers: one request covers more than 4 GiB") {
    Rig rig(large());
    const std::uint64_t size = rig.options.size;
    Client client = rig.enter(extended);
    const std::uint64_t written = 5 * gib + 2 * mib;
    const auto write = [&] {
        REQUIRE(client.ask({CommandType::write, written, 2 * mib}).error == Error::none);
    };
    const auto status = [&](unsigned flags) {
        return client.ask({CommandType::block_status, 0, size, static_cast<std::uint16_t>(flags)})
            .extents;
    };
    using Extents = std::vector<protocol::Extent>;
    const Extents all_holes{{size, hole}};
    const Extents one_page{{written, hole}, {2 * mib, 0}, {size - written - 2 * mib, hole}};

    CHECK(status(0) == all_holes);
    write();
    CHECK(status(0) == one_page);
    CHECK(status(flag::payload_len) == one_page);
    CHECK(status(flag::req_one) == Extents{one_page[0]});
    CHECK(client.ask({CommandType::block_status, 0, 4 * gib, flag::req_one}).extents ==
          Extents{{4 * gib, hole}});

    // Each request ends in the written page, which a 32-bit length would not reach.
    for (const Ask& ask :
         {Ask{CommandType::trim, 0, size}, Ask{CommandType::trim, 1, 5 * gib + 4 * mib},
          Ask{CommandType::write_zeroes, 4096, size - 4096, flag::fast_zero},
          Ask{CommandType::write_zeroes, 0, written + 2 * mib}}) {
        CAPTURE(ask.length);
        CHECK(client.ask(ask).error == Error::none);
        CHECK(status(0) == all_holes);
        write();
    }
    CHECK(client.ask({CommandType::cache, 0, size}).error == Error::none);
    CHECK(client.ask({CommandType::trim, 0, size}).error == Error::none);
    rig.check_over(client);
    CHECK(rig.volume->mapped_bytes() == 0);
    CHECK(rig.budget_used() == 0);
}

TEST_CASE("extended headers: refused requests have a text, and their payload is consumed") {
    Rig rig;
    const std::uint64_t size = rig.options.size;
    Client client = rig.enter(extended);
    const struct {
        Ask ask;
        Error error;
        const char* text;
    } rows[] = {
        {{CommandType::write, size - 10, 11}, Error::enospc, "beyond the end of the export"},
        {{CommandType::read, size, 1}, Error::einval, "beyond the end of the export"},
        {{CommandType::trim, 0, 4 * gib}, Error::einval, "beyond the end of the export"},
        {{CommandType::read, 0, 100, flag::payload_len},
         Error::einval,
         "a payload that this command does not support"},
        {{CommandType::flush, 0, 100, flag::payload_len},
         Error::einval,
         "a payload that this command does not support"},
        {{static_cast<CommandType>(99), 7, 100, flag::payload_len},
         Error::einval,
         "unknown command"},
        {{CommandType::block_status, 0, size + 1, flag::payload_len},
         Error::einval,
         "beyond the end of the export"},
        {{CommandType::write_zeroes, 0, 10, flag::no_hole | flag::fast_zero},
         Error::enotsup,
         "fast zeroing is not possible with NO_HOLE or an origin"},
        {{CommandType::read, 0, 10}, Error::none, ""},
        {{CommandType::write, 0, 0}, Error::none, ""},
        {{CommandType::read, 0, 0}, Error::none, ""},
    };
    std::vector<std::uint64_t> cookies;
    for (const auto& row : rows) cookies.push_back(client.send(row.ask));
    for (std::size_t i = 0; i != std::size(rows); ++i) {
        CAPTURE(i);
        const Answer answer = client.answer(cookies[i]);
        CHECK(answer.error == rows[i].error);
        CHECK(answer.text == rows[i].text);
    }
    rig.check_clean(client);
}

// Encodes the request unchanged, without the corrections of Client.
Bytes raw(const protocol::Request& request) {
    Bytes bytes(protocol::extended_request_size);
    protocol::encode_extended_request(request,
                                      std::span(bytes).first<protocol::extended_request_size>());
    return bytes;
}

TEST_CASE("extended headers: a WRITE without PAYLOAD_LEN has no payload and is refused") {
    Rig rig;
    Client client = rig.enter(extended);
    const std::uint64_t cookie = client.expect({CommandType::write, 0, 4096});
    client.send_bytes(raw({.type = 1, .cookie = cookie, .length = 4096}));
    const Answer answer = client.answer(cookie);
    CHECK(answer.error == Error::einval);
    CHECK(answer.text == "WRITE without PAYLOAD_LEN");
    CHECK(client.ask({CommandType::read, 0, 100}).data == Bytes(100));
    rig.check_clean(client);
}

TEST_CASE("extended headers: fatal protocol violations close the connection") {
    const protocol::Request absurd{.flags = flag::payload_len, .length = std::uint64_t{1} << 40};
    Bytes compact(protocol::extended_request_size);
    protocol::encode_request({.length = 512}, std::span(compact).first<protocol::request_size>());
    Rig rig;
    for (const Bytes& bytes : {raw(absurd), compact}) {
        Client client = rig.enter(extended);
        client.send_bytes(bytes);
        client.check_end();
    }
    Client client = rig.enter({});
    client.send_bytes(raw({.length = 512}));
    client.check_end();
    rig.check_clean(client);
}

}  // namespace
}  // namespace gpunbd::server::test
