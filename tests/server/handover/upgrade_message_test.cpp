// The messages between a server and its successor: each is complete, or rejected.
#include "server/handover/message.hpp"

#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <thread>

#include "server/net/transport/receive_buffer.hpp"
#include "tests/test.hpp"

namespace gpunbd::server::test {
namespace {

using Body = std::vector<std::byte>;

int some_descriptor() { return ::open("/dev/null", O_RDONLY | O_CLOEXEC); }

struct KindRow {
    MessageKind kind;
    bool body;
    bool descriptor;
};
constexpr KindRow kinds[] = {
    {MessageKind::start, false, false},         {MessageKind::listener, true, true},
    {MessageKind::device, true, false},         {MessageKind::calibration, true, false},
    {MessageKind::import, true, true},          {MessageKind::prepare, false, false},
    {MessageKind::contents, true, true},        {MessageKind::connection, true, true},
    {MessageKind::received, true, false},       {MessageKind::all, false, false},
    {MessageKind::activate, false, false},      {MessageKind::cannot_run, true, false},
    {MessageKind::prepared, false, false},      {MessageKind::ready, false, false},
    {MessageKind::run_time_export, true, true}, {MessageKind::ublk_device, true, false},
    {MessageKind::origin_lock, true, true},
};

std::string why_refused(const Body& bytes, int descriptor) {
    const auto decoded = decode_message(bytes, descriptor);
    return decoded ? "" : decoded.error();
}

TEST_CASE("upgrade messages: each kind with its fields, and no others") {
    for (const KindRow& row : kinds) {
        CAPTURE(static_cast<int>(row.kind));
        for (const bool body : {false, true}) {
            for (const bool descriptor : {false, true}) {
                const Body sent =
                    encode_message({.kind = row.kind, .body = body ? text_body("text") : Body{}});
                const int fd = descriptor ? some_descriptor() : -1;
                const bool right = body == row.body && descriptor == row.descriptor;
                {
                    const auto got = decode_message(sent, fd);
                    CHECK(got.has_value() == right);
                    if (!right) continue;
                    const UpgradeMessage& message = *got;
                    CHECK(message.kind == row.kind);
                    CHECK(body_text(message.body) == (body ? "text" : ""));
                    CHECK(message.descriptor.get() == fd);
                }
                if (descriptor) CHECK(::fcntl(fd, F_GETFD) < 0);  // it is closed
            }
        }
    }
}

TEST_CASE("upgrade messages: invalid heads") {
    const Body good = encode_message({.kind = MessageKind::all});
    CHECK(good == Body{std::byte{0x67}, std::byte{0x70}, std::byte{0x75}, std::byte{0x70},
                       std::byte{0}, std::byte{3}, std::byte{0}, std::byte{10}});
    for (std::size_t length = 0; length != good.size(); ++length) {
        CHECK(why_refused({good.begin(), good.begin() + static_cast<std::ptrdiff_t>(length)}, -1) ==
              "a message is too short");
    }
    Body longer = good;
    longer.push_back(std::byte{0});
    CHECK(why_refused(longer, -1) == "a message of kind 10 is too long");
    Body other = good;
    other[5] = std::byte{2};
    CHECK(why_refused(other, -1) == "it speaks version 2, but this gpunbd speaks version 3");
    other = good;
    other[0] = std::byte{0};
    CHECK(why_refused(other, -1) == "the peer is not a gpunbd server");
    for (const int kind : {0, 18, 255}) {
        other = good;
        other[7] = static_cast<std::byte>(kind);
        CHECK(contains(why_refused(other, -1), "unknown kind"));
    }
    const int fd = some_descriptor();
    CHECK(contains(why_refused(other, fd), "unknown kind"));
    CHECK(::fcntl(fd, F_GETFD) < 0);
}

ConnectionState some_state() {
    protocol::MetaContexts contexts(protocol::MetaContext::device);
    return {.listener = "unix socket /run/x",
            .negotiated = {.headers = protocol::Headers::extended,
                           .contexts = contexts,
                           .export_info = {.name = "a",
                                           .size = 1 << 30,
                                           .read_only = true,
                                           .minimum_block = 512,
                                           .preferred_block = 8192,
                                           .maximum_payload = 1 << 20}},
            .half_write = {.cookie = 0xfedcba9876543210,
                           .offset = 4096,
                           .length = 65536,
                           .arrived = 65535,
                           .fua = true},
            .discarded = 0,
            .received = Body(100, std::byte{7}),
            .requests = 1,
            .read = 2,
            .written = 3,
            .errors = 4,
            .milliseconds = 4};
}

TEST_CASE("upgrade messages: a part of kept contents is encoded and decoded") {
    const ImportPart part{.name = "gpunbd/0123456789ab/1/2",
                          .entry = {.pages = 512, .kind = 0x84, .generation = 0xabcdef}};
    const Body body = encode_import(part);
    CHECK(*decode_import(body) == part);
    CHECK(decode_import(std::span(body).first(body.size() - 1)).has_error());
}

TEST_CASE("upgrade messages: the state of a connection is encoded and decoded") {
    const ConnectionState state = some_state();
    const auto decoded = decode_connection(encode_connection(state));
    REQUIRE(decoded.has_value());
    const auto& [there, later] = *decoded;
    CHECK(there.listener == state.listener);
    CHECK(there.negotiated.headers == state.negotiated.headers);
    CHECK(there.negotiated.contexts == state.negotiated.contexts);
    const protocol::ExportInfo& info = there.negotiated.export_info;
    CHECK(info.name == "a");
    CHECK(info.size == 1 << 30);
    CHECK(info.read_only);
    CHECK(info.minimum_block == 512);
    CHECK(info.preferred_block == 8192);
    CHECK(info.maximum_payload == 1 << 20);
    CHECK(there.half_write == state.half_write);
    CHECK(there.requests == 1);
    CHECK(there.read == 2);
    CHECK(there.written == 3);
    CHECK(there.milliseconds == 4);
    CHECK(there.received.empty());
    CHECK(later == 100);
}

TEST_CASE("upgrade messages: a body with one byte too few or too many") {
    const Body connection = encode_connection(some_state());
    const Body calibration = encode_calibration({.device = "GPU-1", .found = "as it is"});
    CHECK(*decode_calibration(calibration) == Calibration{.device = "GPU-1", .found = "as it is"});
    const auto refuses = [](const Body& body, auto decode) {
        for (std::size_t length = 0; length != body.size(); ++length) {
            const Body part(body.begin(), body.begin() + static_cast<std::ptrdiff_t>(length));
            CHECK(decode(part).has_error());
        }
        Body longer = body;
        longer.push_back(std::byte{0});
        CHECK(decode(longer).has_error());
    };
    refuses(connection, [](const Body& body) { return decode_connection(body); });
    refuses(calibration, [](const Body& body) { return decode_calibration(body); });
}

TEST_CASE("upgrade messages: an impossible state of a connection") {
    const auto refused = [](auto change) {
        ConnectionState state = some_state();
        change(state);
        return !decode_connection(encode_connection(state));
    };
    CHECK_FALSE(refused([](ConnectionState&) {}));
    CHECK_FALSE(refused([](ConnectionState& state) { state.half_write = {}; }));
    CHECK(refused([](ConnectionState& state) { state.half_write.arrived = 65536; }));
    CHECK(refused([](ConnectionState& state) { state.half_write.length = 0; }));
    CHECK(refused([](ConnectionState& state) { state.half_write.offset = 1 << 30; }));
    CHECK(refused([](ConnectionState& state) { state.half_write.offset = ~std::uint64_t{0}; }));
    CHECK(refused([](ConnectionState& state) { state.half_write.length = ~std::uint64_t{0}; }));
    CHECK(refused([](ConnectionState& state) { state.discarded = 1; }));
    CHECK(refused(
        [](ConnectionState& state) { state.received.resize(ReceiveBuffer::capacity + 1); }));
    CHECK(refused([](ConnectionState& state) {
        state.negotiated.headers = static_cast<protocol::Headers>(3);
    }));
    CHECK(refused([](ConnectionState& state) { state.negotiated.export_info.minimum_block = 0; }));
    CHECK(refused([](ConnectionState& state) { state.negotiated.export_info.minimum_block = 3; }));
    CHECK(refused([](ConnectionState& state) {
        state.negotiated.headers = protocol::Headers::simple;
        state.negotiated.contexts = protocol::MetaContext::base_allocation;
    }));
}

std::string why_not_received(const MessageSocket& socket, MessageKind kind) {
    return error_of([&] { return socket.expect(kind, std::chrono::milliseconds(0)); });
}

TEST_CASE("upgrade messages: through a socket pair") {
    auto [one, other] = MessageSocket::make_pair();
    const int raw = one.get();
    const MessageSocket here(std::move(one));
    CHECK_FALSE(here.has_message());
    CHECK(why_not_received(here, MessageKind::ready) == "it did not answer in time");
    {
        const MessageSocket there(std::move(other));
        here.send({.kind = MessageKind::contents,
                   .body = text_body("gpunbd/a"),
                   .descriptor = OwnedFd(some_descriptor())});
        CHECK(there.has_message());
        const UpgradeMessage got = there.expect(MessageKind::contents, std::chrono::seconds(1));
        CHECK(body_text(got.body) == "gpunbd/a");
        CHECK(::fcntl(got.descriptor.get(), F_GETFD) == FD_CLOEXEC);
        const Body longest =
            encode_message({.kind = MessageKind::received, .body = Body(max_upgrade_message - 8)});
        REQUIRE(::send(raw, longest.data(), longest.size(), 0) > 0);
        CHECK(why_not_received(there, MessageKind::received).empty());
        const Body longer =
            encode_message({.kind = MessageKind::received, .body = Body(max_upgrade_message - 7)});
        REQUIRE(::send(raw, longer.data(), longer.size(), 0) > 0);
        CHECK(why_not_received(there, MessageKind::received) == "a message is too long");
        here.send({.kind = MessageKind::all});
        CHECK(why_not_received(there, MessageKind::activate) ==
              "received a message of kind 10 instead of kind 11");
        here.send({.kind = MessageKind::cannot_run, .body = text_body("no such file")});
        CHECK(why_not_received(there, MessageKind::prepared) == "no such file");
    }
    CHECK(here.has_message());
    CHECK(why_not_received(here, MessageKind::ready) == "it has ended");
    CHECK_THROWS_WITH(here.send({.kind = MessageKind::all}), "it has ended");
}

TEST_CASE("upgrade messages: a full socket that Asio uses too waits for its reader") {
    auto [one, other] = MessageSocket::make_pair();
    const int raw = one.get();
    REQUIRE(::fcntl(raw, F_SETFL, O_NONBLOCK) == 0);
    const MessageSocket here(std::move(one));
    const MessageSocket there(std::move(other));
    const UpgradeMessage message{.kind = MessageKind::received, .body = Body(10'000)};
    const Body bytes = encode_message(message);
    int sent = 1;
    while (::send(raw, bytes.data(), bytes.size(), 0) > 0) ++sent;
    std::string why = "it has not been sent";
    std::atomic<bool> has_ended{false};
    std::jthread sender([&] {
        why = error_of([&] { here.send(message); });
        has_ended = true;
    });
    for (int i = 0; i != 50 && !has_ended; ++i) {  // a send that does not wait ends before
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    for (; sent != 0; --sent) there.expect(MessageKind::received, std::chrono::seconds(10));
    sender.join();
    CHECK(why.empty());
}

TEST_CASE("upgrade messages: messages sent before the end are received, despite unread ones") {
    auto [one, other] = MessageSocket::make_pair();
    const MessageSocket here(std::move(one));
    {
        const MessageSocket there(std::move(other));
        here.send({.kind = MessageKind::all});
        there.send({.kind = MessageKind::cannot_run, .body = text_body("no such file")});
    }
    CHECK(why_not_received(here, MessageKind::ready) == "no such file");
    CHECK(why_not_received(here, MessageKind::ready) == "it has ended");
}

}  // namespace
}  // namespace gpunbd::server::test
