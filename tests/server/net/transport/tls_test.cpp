// TLS sessions with clients of any identity and behaviour: before, during and after the handshake.
#include <fcntl.h>
#include <openssl/err.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <random>

#include "server/net/transport/tls_context.hpp"
#include "server/net/transport/tls_stream.hpp"
#include "tests/server/captured_log.hpp"
#include "tests/server/happy_script.hpp"
#include "tests/server/net/transport/tls_client.hpp"
#include "tests/server/net/transport/tls_files.hpp"
#include "tests/test.hpp"

namespace gpunbd::server::test {
namespace {

using config::TlsMode;

constexpr int versions[] = {TLS1_2_VERSION, TLS1_3_VERSION};
// Over TCP the kernel does TLS if it can; over a Unix socket it never does.
constexpr Transport transports[] = {Transport::unix_, Transport::tcp};
constexpr std::pair<int, Transport> every_kind[] = {{TLS1_2_VERSION, Transport::unix_},
                                                    {TLS1_2_VERSION, Transport::tcp},
                                                    {TLS1_3_VERSION, Transport::unix_},
                                                    {TLS1_3_VERSION, Transport::tcp}};

TlsClientOptions with_key(std::string user, std::string key, int version = TLS1_3_VERSION) {
    return {.version = version, .user = std::move(user), .key = std::move(key)};
}

// A server with TLS, and its log.
struct TlsServer {
    TlsFiles files;
    CapturedLog log{spdlog::level::info};
    Rig rig{{.tls = context_of(files)}};

    TlsClient connect(int version = TLS1_3_VERSION, Transport transport = Transport::unix_) {
        return connect(with_certificate(files, version), transport);
    }
    TlsClient connect(const TlsClientOptions& options, Transport transport = Transport::unix_) {
        return TlsClient(rig.connect_socket(transport), options);
    }
};

std::string shake_hands(TlsClient&& client) {
    if (!client.ask_for_tls()) return "STARTTLS was refused";
    std::string words = client.shake_hands();
    if (!words.empty()) return words;
    // In TLS 1.3 the client's handshake succeeds before the server has checked its certificate.
    client.send(protocol::wire::option(protocol::wire::opt::list));
    char byte = 0;
    std::size_t got = 0;
    if (::SSL_read_ex(&client.ssl(), &byte, 1, &got) == 1) return "";
    const unsigned long error = ::ERR_peek_error();
    ::ERR_clear_error();
    return error == 0 ? "the server hung up" : ::ERR_reason_error_string(error);
}

void play(Rig& rig, const Variant& variant, const TlsClientOptions& options, Transport transport) {
    const TlsGoBetween between(rig.connect_socket(transport), options);
    Client client(between.client_end(), variant.handshake());
    client.enter();
    Model model(rig.options.size);
    for (const Ask& ask : happy_script(variant)) model.ask(client, ask);
    client.disconnect();
}

TEST_CASE("tls: the happy script succeeds, with certificate and key, in both versions") {
    const TlsFiles files;
    for (const Variant& variant : variants) {
        for (const int version : versions) {
            CAPTURE(variant.name);
            CAPTURE(version);
            Rig rig({.devices = variant.devices, .tls = context_of(files)});
            for (const Transport transport : transports) {
                play(rig, variant, with_certificate(files, version), transport);
            }
            play(rig, variant, with_key("alice", TlsFiles::alices_key, version), Transport::tcp);
            rig.check_clean();
            CHECK(rig.budget_used() == 0);
        }
    }
}

TEST_CASE("tls: many requests of all lengths succeed with records of any length") {
    const TlsFiles files;
    std::mt19937 random(11);
    constexpr std::uint64_t slot = 16 * kib;
    constexpr std::uint64_t slots = 200;
    for (const std::size_t longest_record : {1, 40, 5'000, 16'384}) {
        CAPTURE(longest_record);
        const Transport transport =
            longest_record == 40 || longest_record == 16'384 ? Transport::tcp : Transport::unix_;
        Rig rig({.devices = "hs", .size = slots * slot, .tls = context_of(files)});
        TlsClientOptions options = with_certificate(files);
        options.longest_record = longest_record;
        const TlsGoBetween between(rig.connect_socket(transport), options);
        Client client(between.client_end(), {});
        client.enter();
        Model model(rig.options.size);
        std::vector<std::uint64_t> cookies;
        // Records of one byte are slow, so send fewer requests.
        const std::uint64_t used = longest_record == 1 ? 5 : slots;
        for (std::uint64_t i = 0; i != used; ++i) {
            const Ask write{CommandType::write, i * slot, 1 + random() % slot, 0, 7};
            cookies.push_back(client.send(write));
            model.apply(write, true);
        }
        for (const std::uint64_t cookie : cookies) {
            REQUIRE(client.answer(cookie).error == Error::none);
        }
        std::vector<std::pair<Ask, std::uint64_t>> reads;
        for (std::uint64_t i = 0; i != used; ++i) {
            const Ask read{CommandType::read, i * slot, 1 + random() % slot};
            reads.emplace_back(read, client.send(read));
        }
        for (const auto& [read, cookie] : reads) model.check(read, client.answer(cookie));
        client.close();
        rig.check_clean();
    }
}

TEST_CASE("tls: a client that reads slowly receives large replies completely and once") {
    const TlsFiles files;
    constexpr std::uint64_t size = 8 * mib;
    for (const int version : versions) {
        Rig rig({.devices = "h", .page_size = mib, .size = size, .tls = context_of(files)});
        const TlsGoBetween between(rig.connect_socket(Transport::tcp),
                                   with_certificate(files, version));
        Client client(between.client_end(), {});
        client.enter();
        Model model(size);
        model.ask(client, {CommandType::write, 0, size, 0, 3});
        std::vector<std::pair<Ask, std::uint64_t>> asked;
        for (std::uint64_t i = 0; i != 10; ++i) {
            const Ask read{CommandType::read, i * 1001, i % 2 == 0 ? size - i * 1001 : 5000 + i};
            asked.emplace_back(read, client.send(read));
        }
        for (const auto& [read, cookie] : asked) model.check(read, client.answer(cookie));
        client.disconnect();
        rig.check_clean();
    }
}

TEST_CASE("tls: the log names the TLS version, the cipher and the client") {
    TlsServer server;
    CHECK(shake_hands(server.connect()) == "");
    const auto options = with_key("alice", TlsFiles::alices_key, TLS1_2_VERSION);
    CHECK(shake_hands(server.connect(options)) == "");
    server.rig.check_over();
    server.log.check(
        "TLS 1.3, TLS_AES_128_GCM_SHA256, in the process, certificate 'alice', 'alice.example'");
    server.log.check(
        "TLS 1.2, TLS_ECDHE_PSK_WITH_CHACHA20_POLY1305_SHA256, in the process, user 'alice'");
}

// tests/vm runs these tests with a kernel that supports TLS.
TEST_CASE("tls: over TCP the kernel does TLS if it can, and the log says so") {
    const bool kernel_can = std::getenv("GPUNBD_KERNEL_TLS") != nullptr;
    for (const int version : versions) {
        CAPTURE(version);
        TlsServer server;
        CHECK(shake_hands(server.connect(version, Transport::tcp)) == "");
        server.rig.check_over();
        CHECK((server.log.count(", kernel sending") != 0 ||
               (!kernel_can && server.log.count(", in the process") != 0)));
    }
}

TEST_CASE("tls: a client without a valid certificate is refused, and the log has the reason") {
    const TlsFiles files;
    const TlsFiles strangers;
    files.issue("expired", {.common_name = "old", .from = -7200, .until = -3600});
    files.issue("early", {.common_name = "early", .from = 3600, .until = 7200});
    files.issue("revoked", {.common_name = "revoked"});
    files.revoke("revoked");
    for (const int version : versions) {
        const std::tuple<const char*, TlsClientOptions, const char*> rows[] = {
            {"another authority", with_certificate(strangers, version),
             "the client's certificate: "},
            {"expired", with_certificate(files, version, "expired"),
             "the client's certificate: certificate has expired"},
            {"early", with_certificate(files, version, "early"),
             "the client's certificate: certificate is not yet valid"},
            {"revoked", with_certificate(files, version, "revoked"),
             "the client's certificate: certificate revoked"},
            {"none", with_certificate(files, version, ""), "peer did not return a certificate"},
        };
        for (const auto& [name, options, reason] : rows) {
            CAPTURE(name);
            CAPTURE(version);
            const CapturedLog ends(spdlog::level::info);
            Rig rig({.tls = context_of(files)});
            CHECK(shake_hands(TlsClient(rig.connect_socket(), options)) != "");
            rig.check_over();
            ends.check(std::string("the TLS handshake failed: ") + reason);
        }
    }
}

TEST_CASE("tls: without verify_clients no certificate is requested, and none identifies a client") {
    const TlsFiles files;
    const TlsFiles strangers;
    const CapturedLog ends(spdlog::level::info);
    Rig rig({.tls = context_of({TlsMode::required, files.folder(), false, ""})});
    for (const char* const name : {"", "client"}) {
        const auto options = with_certificate(strangers, TLS1_3_VERSION, name);
        CHECK(shake_hands(TlsClient(rig.connect_socket(), options)) == "");
    }
    rig.check_over();
    CHECK(ends.count("alice") == 0);
}

// The alert must not show which of the two was wrong.
TEST_CASE("tls: an unknown user and a wrong key look the same to the client") {
    const TlsFiles files;
    for (const bool certificates : {true, false}) {
        for (const int version : versions) {
            CAPTURE(version);
            const CapturedLog ends(spdlog::level::info);
            Rig rig({.tls = context_of({TlsMode::required, certificates ? files.folder() : "", true,
                                        files.path("keys.psk")})});
            std::set<std::string> answers;
            for (const char* user : {"alice", "nobody", "alicf", ""}) {
                const auto options =
                    with_key(*user == 0 ? "a" : user, std::string(64, '7'), version);
                answers.insert(shake_hands(TlsClient(rig.connect_socket(), options)));
            }
            CHECK(answers.size() == 1);
            CHECK(answers.count("") == 0);
            rig.check_over();
            ends.check("(user 'alice')");
            ends.check("(unknown user 'nobody')");
        }
    }
}

// It is served if TLS is optional.
TEST_CASE("tls: a plain client gets TLS_REQD if TLS is required") {
    const TlsFiles files;
    {
        Rig rig({.tls = context_of(files)});
        Client client = rig.connect();
        CHECK(client.shake_hands() == 0x80000005);
        rig.check_over(client);
    }
    Rig rig({.tls = context_of(files, TlsMode::optional)});
    Client client = rig.enter();
    CHECK(client.ask({CommandType::read, 0, 4096}).error == Error::none);
    client.close();
    play(rig, variants[0], with_certificate(files), Transport::tcp);
    rig.check_clean();
}

TEST_CASE("tls: older versions are refused") {
    TlsServer server;
    for (const int version : {TLS1_VERSION, TLS1_1_VERSION}) {
        CHECK(shake_hands(server.connect(version)) != "");
    }
    server.rig.check_over();
    server.log.check("the TLS handshake failed: unsupported protocol");
}

TEST_CASE("tls: plain text before and after STARTTLS closes the connection") {
    const Bytes option = protocol::wire::option(protocol::wire::opt::list);
    TlsServer server;
    // In one segment: neither the injected bytes nor STARTTLS are answered.
    CHECK_FALSE(server.connect().ask_for_tls(option));
    for (const bool after_handshake : {false, true}) {
        TlsClient client = server.connect();
        if (after_handshake) {
            client.enter();
        } else {
            REQUIRE(client.ask_for_tls());
        }
        client.send_raw(option);
        CHECK(client.hangs_up());
    }
    server.rig.check_over();
    server.log.check("unencrypted bytes after STARTTLS");
    server.log.check("the TLS handshake failed: wrong version number");
}

bool has_something_to_read(int fd) {
    pollfd poll{.fd = fd, .events = POLLIN, .revents = 0};
    return ::poll(&poll, 1, 0) == 1;
}

// Runs on the worker's own thread, so that nothing happens between its rounds.
TEST_CASE("tls: a request does not wait behind earlier handshakes") {
    constexpr int crowd = 24;
    const TlsFiles files;
    Rig rig({.tls = context_of(files, TlsMode::optional)});
    Client reader = rig.enter();
    auto greeted = clients_before_handshake(rig, files, crowd);
    const auto shaken = rig.on_worker_with([&](WorkerContext& its) {
        for (const auto& each : greeted) ::SSL_connect(&each->ssl());  // sends only the ClientHello
        ::ERR_clear_error();
        reader.send({CommandType::read, 0, 4 * kib});
        while (!reader.readable()) its.scheduler.round();
        return std::count_if(greeted.begin(), greeted.end(),
                             [](const auto& each) { return has_something_to_read(each->fd()); });
    });
    CHECK(shaken <= crowd / 4);
    greeted.clear();
    reader.close();
    rig.check_over();
}

TEST_CASE("tls: garbage instead of a ClientHello closes the connection") {
    TlsServer server;
    std::mt19937 random(3);
    for (int i = 0; i != 50; ++i) {
        TlsClient client = server.connect();
        REQUIRE(client.ask_for_tls());
        Bytes garbage(1 + random() % 2000);
        for (std::byte& each : garbage) each = static_cast<std::byte>(random());
        if (i % 2 == 0) {  // with the header of a handshake record
            garbage.insert(garbage.begin(), {std::byte{22}, std::byte{3}, std::byte{1}});
        }
        REQUIRE(::send(client.fd(), garbage.data(), garbage.size(), MSG_NOSIGNAL) > 0);
        ::shutdown(client.fd(), SHUT_WR);  // the server may wait for more
        CHECK(client.hangs_up());
    }
    server.rig.check_over();
}

TEST_CASE("tls: a handshake that stalls is closed, at each of its steps") {
    const TlsFiles files;
    const CapturedLog ends(spdlog::level::info);
    // Long enough for the first steps of each client, also on a machine that stalls for seconds.
    Rig rig({.limits = {.handshake = std::chrono::seconds(10)}, .tls = context_of(files)});
    TlsClient before(rig.connect_socket(), with_certificate(files));
    REQUIRE(before.ask_for_tls());
    TlsClient within(rig.connect_socket(), with_certificate(files));
    REQUIRE(within.ask_for_tls());
    const Bytes start{std::byte{22}, std::byte{3}, std::byte{1}, std::byte{2}};  // of a record
    within.send_raw(start);
    TlsClient after(rig.connect_socket(), with_certificate(files));
    after.enter();
    for (TlsClient* const client : {&before, &within, &after}) CHECK(client->hangs_up());
    rig.check_over();
    ends.check("the handshake took too long");
}

TEST_CASE("tls: a client may disconnect after any byte of its handshake, without a leak") {
    const TlsFiles files;
    // Records the bytes that a client sends before it is served, with a server of the same kind.
    Rig rig({.tls = context_of(files)});
    for (std::size_t length = 0;; length += 13) {
        const auto both = unix_pair();
        const int server = rig.connect_socket();
        std::atomic<std::size_t> passed{0};
        // Forwards the first bytes of the client, and all of the server.
        std::thread cut([&] {
            const std::size_t most = length;
            std::size_t sent = 0;
            for (;;) {
                pollfd waits[2] = {{both.second, POLLIN, 0}, {server, POLLIN, 0}};
                if (::poll(waits, 2, guard) < 1) break;
                char bytes[4096];
                if (waits[1].revents != 0) {
                    const ssize_t got = ::recv(server, bytes, sizeof bytes, 0);
                    if (got <= 0) break;
                    ::send(both.second, bytes, static_cast<std::size_t>(got), MSG_NOSIGNAL);
                }
                if (waits[0].revents == 0) continue;
                const ssize_t got = ::recv(both.second, bytes, sizeof bytes, 0);
                if (got <= 0) break;
                const std::size_t used = std::min(static_cast<std::size_t>(got), most - sent);
                ::send(server, bytes, used, MSG_NOSIGNAL);
                sent += used;
                if (sent == most) break;
            }
            passed = sent;
            ::close(server);
            ::close(both.second);
        });
        const bool in = shake_hands(TlsClient(both.first, with_certificate(files))).empty();
        cut.join();
        if (in) break;
        REQUIRE(passed == length);
    }
    rig.check_over();
}

TEST_CASE("tls: a connection cut within a record is closed without a leak") {
    for (const auto& [version, transport] : every_kind) {
        TlsServer server;
        TlsClient client = server.connect(version, transport);
        client.enter();
        client.open_export();
        const Bytes write = encoded({CommandType::write, 0, 100'000}, 1);
        client.send(std::span(write).first(20'000));
        client.send_raw(protocol::test::hex("17 0303 4000 01020304050607"));
        client.close();
        server.rig.check_clean();
        server.log.check("the client hung up");
    }
}

TEST_CASE("tls: a modified record ends the connection and is not executed") {
    TlsServer server;
    TlsClient client = server.connect();
    client.enter();
    constexpr std::size_t length = 95;
    client.send_raw(
        protocol::test::joined({protocol::test::hex("17 0303 005f"), Bytes(length, std::byte{7})}));
    CHECK(client.hangs_up());
    server.rig.check_over();
}

TEST_CASE("tls: the connection ends with close_notify, whichever side closes it") {
    enum class Side { client_by_disc, server, client };
    for (const auto& [version, transport] : every_kind) {
        TlsServer server;
        for (const Side side : {Side::client_by_disc, Side::server, Side::client}) {
            TlsClient client = server.connect(version, transport);
            client.enter();
            client.open_export();
            if (side == Side::client_by_disc) {
                client.send(encoded({CommandType::disc}, 1));
                CHECK_FALSE(client.take(1).has_value());
                CHECK(::SSL_get_shutdown(&client.ssl()) == SSL_RECEIVED_SHUTDOWN);
                unsigned char left = 0;
                CHECK(::recv(client.fd(), &left, 1, 0) == 0);
            } else if (side == Side::server) {
                server.rig.drain();
                CHECK_FALSE(client.take(1).has_value());
                CHECK(client.received_close_notify());
            } else {
                ::SSL_shutdown(&client.ssl());
                CHECK(client.hangs_up());
            }
        }
        server.rig.check_over();
        server.log.check("the client hung up");
        server.log.check("the client disconnected");
    }
}

TEST_CASE("tls: a client that never reads blocks no other client, and is disconnected") {
    const TlsFiles files;
    Rig rig({.devices = "sh", .size = 40 * 32 * kib, .tls = context_of(files)});
    TlsClient silent(rig.connect_socket(), with_certificate(files));
    silent.enter();
    Bytes out = served_options();
    for (std::uint64_t i = 0; i != 100; ++i) {
        const Bytes read = encoded({CommandType::read, 0, mib}, i);
        out.insert(out.end(), read.begin(), read.end());
    }
    silent.send(out);
    play(rig, variants[0], with_certificate(files), Transport::tcp);
    rig.cut();
    rig.check_clean();
}

TEST_CASE("tls: nothing is renegotiated, resumed or compressed") {
    TlsServer server;
    for (const int version : versions) {
        TlsClient client = server.connect(version);
        CHECK(shake_hands(std::move(client)) == "");
        CHECK(::SSL_get_current_compression(&client.ssl()) == nullptr);
        CHECK(::SSL_SESSION_has_ticket(::SSL_get0_session(&client.ssl())) == 0);
        CHECK(::SSL_SESSION_get_max_early_data(::SSL_get0_session(&client.ssl())) == 0);
        unsigned int length = 0;
        if (version == TLS1_2_VERSION) {
            ::SSL_SESSION_get_id(::SSL_get0_session(&client.ssl()), &length);
            CHECK(length == 0);
            ::SSL_renegotiate(&client.ssl());
            CHECK(::SSL_do_handshake(&client.ssl()) != 1);
            ::ERR_clear_error();
        }
    }
    server.rig.check_over();
}

TEST_CASE("tls: a client may change its keys and request new keys of the server") {
    // If the kernel sends, the server cannot change its keys.
    for (const auto& [transport, kind] :
         {std::pair(Transport::unix_, SSL_KEY_UPDATE_REQUESTED),
          std::pair(Transport::tcp, SSL_KEY_UPDATE_NOT_REQUESTED)}) {
        TlsServer server;
        TlsClient client = server.connect(TLS1_3_VERSION, transport);
        client.enter();
        client.open_export();
        for (std::uint64_t i = 0; i != 20; ++i) {
            REQUIRE(::SSL_key_update(&client.ssl(), kind) == 1);
            client.send(encoded({CommandType::write, 0, 5000, 0, 9}, i));
            REQUIRE(client.take(16).has_value());
            client.send(encoded({CommandType::read, 0, 5000}, i));
            const auto answer = client.take(16 + 5000);
            REQUIRE(answer.has_value());
            CHECK(Bytes(answer->begin() + 16, answer->end()) ==
                  payload_of({.length = 5000, .seed = 9}));
        }
        client.close();
        server.rig.check_clean();
    }
}

struct SeenRecords {
    std::uint64_t key_updates = 0;
    std::uint64_t records = 0;           // with payload, under the current key
    std::uint64_t records_of_a_key = 0;  // maximum; TLS 1.3
};

void count_records(int writes, int version, int type, const void* bytes, std::size_t length,
                   SSL* ssl, void* given) {
    auto& seen = *static_cast<SeenRecords*>(given);
    const auto* const message = static_cast<const unsigned char*>(bytes);
    static_cast<void>(version);
    if (writes != 0 || ::SSL_version(ssl) != TLS1_3_VERSION) return;
    if (type == SSL3_RT_HANDSHAKE && length != 0 && message[0] == SSL3_MT_KEY_UPDATE) {
        ++seen.key_updates;
        seen.records = 0;
    }
    if (type == SSL3_RT_INNER_CONTENT_TYPE && message[0] == SSL3_RT_APPLICATION_DATA) {
        seen.records_of_a_key = std::max(seen.records_of_a_key, ++seen.records);
    }
}

TEST_CASE("tls: a key seals a limited number of records") {
    constexpr std::uint64_t records_per_key = 5;
    const TlsFiles files;
    for (const int version : versions) {
        const auto both = unix_pair();
        ::fcntl(both.second, F_SETFL, O_NONBLOCK);
        Pool<ReceiveBuffer> buffers(4);
        Bytes sent(3 * mib);
        for (std::size_t i = 0; i != sent.size(); ++i) sent[i] = static_cast<std::byte>(i % 251);
        std::thread server([&] {
            TlsStream stream(context_of(files), both.second, buffers, records_per_key);
            using Wait = gpunbd::server::Transport::Wait;
            const auto wait = [&](Wait direction) {
                pollfd poll{
                    .fd = both.second,
                    .events = static_cast<short>(direction == Wait::writable ? POLLOUT : POLLIN),
                    .revents = 0};
                REQUIRE(::poll(&poll, 1, guard) == 1);
            };
            for (;;) {
                const auto done = stream.shake_hands();
                REQUIRE_FALSE(done.ended);
                if (stream.established()) break;
                if (done.wait != Wait::none) wait(done.wait);
            }
            std::array<iovec, 3> pieces;
            for (std::size_t gone = 0; gone != sent.size();) {
                // Short, long, and the rest. The data are at a new address in each call.
                Bytes copy(sent.begin() + static_cast<std::ptrdiff_t>(gone), sent.end());
                const std::size_t first = std::min<std::size_t>(100, copy.size());
                const std::size_t second = std::min<std::size_t>(60'000, copy.size() - first);
                pieces[0] = {copy.data(), first};
                pieces[1] = {copy.data() + first, second};
                pieces[2] = {copy.data() + first + second, copy.size() - first - second};
                const auto done = stream.send(pieces);
                REQUIRE_FALSE(done.ended);
                if (done.wait != Wait::none) {
                    CHECK(done.bytes == 0);
                    wait(done.wait);
                }
                gone += done.bytes;
            }
            // close_notify is sent only if the socket has room for it.
            wait(Wait::writable);
            stream.say_goodbye();
            ::shutdown(both.second, SHUT_WR);
        });
        {
            TlsClient client(both.first, with_certificate(files, version));
            REQUIRE(client.shake_hands() == "");
            SeenRecords seen;
            ::SSL_set_msg_callback(&client.ssl(), count_records);
            ::SSL_set_msg_callback_arg(&client.ssl(), &seen);
            const auto got = client.take(sent.size());
            REQUIRE(got.has_value());
            CHECK(*got == sent);
            CHECK(seen.records_of_a_key <= records_per_key);
            CHECK((seen.key_updates != 0) == (version == TLS1_3_VERSION));
            CHECK_FALSE(client.take(1).has_value());
            CHECK(client.received_close_notify());
        }
        server.join();
        ::close(both.second);
    }
}

TEST_CASE("tls: each invalid file is reported in one line") {
    const TlsFiles files;
    const TlsFiles others;
    const auto said = [](const config::TlsOptions& options) {
        return error_of([&] { return context_of(options); });
    };
    const auto with_folder = [&] { return said({TlsMode::required, files.folder(), true, ""}); };
    const auto with_keys = [&](const std::string& text, unsigned int mode = 0600) {
        files.write("k", text, mode);
        return said({TlsMode::required, "", true, files.path("k")});
    };
    const auto at = [&](const char* name) { return files.path(name) + ": "; };
    const std::string certificate = files.read("server-cert.pem");
    const std::string key = files.read("server-key.pem");
    const std::string authority = files.read("ca-cert.pem");
    CHECK(with_folder() == "");

    CHECK(said({TlsMode::required, "", true, ""}).starts_with("TLS needs certificates"));
    CHECK(
        said({TlsMode::required, "/nowhere", true, ""}) ==
        "/nowhere/server-cert.pem: cannot be read: there is no folder '/nowhere'; gpunbd tls-setup "
        "makes what servers and clients need, or correct the path");
    files.write("server-key.pem", others.read("server-key.pem"));
    CHECK(with_folder() == at("server-key.pem") + "is not the key of the certificate " +
                               files.path("server-cert.pem"));
    files.write("server-key.pem", "nothing");
    CHECK(with_folder() == at("server-key.pem") + "is not a private key in PEM");
    for (const unsigned int mode : {0604U, 0602U, 0601U, 0666U}) {
        files.write("server-key.pem", key, mode);
        CHECK(with_folder().starts_with(at("server-key.pem") +
                                        "contains a secret, and all users may open it (mode 0" +
                                        fmt::format("{:o}", mode) + "); run: chmod o= "));
    }
    files.write("server-key.pem", key, 0640);  // the owner has chosen the group
    CHECK(with_folder() == "");
    files.write("server-cert.pem", "nothing");
    CHECK(with_folder().starts_with(at("server-cert.pem") + "is not a usable PEM certificate"));
    // What needs no TLS is served; see Validity.
    files.issue("server", {.common_name = "x", .from = -100, .until = -50});
    CHECK(with_folder() == "");
    files.issue("server", {.common_name = "x", .from = 1000, .until = 5000});
    CHECK(with_folder() == "");
    files.write("server-cert.pem", certificate);
    files.write("server-key.pem", key);
    files.write("ca-cert.pem", "nothing");
    CHECK(with_folder().starts_with(at("ca-cert.pem") + "contains no PEM certificate"));
    CHECK(said({TlsMode::required, files.folder(), false, ""}) == "");  // the file is not read
    files.write("ca-cert.pem", authority);
    files.write("ca-crl.pem", "nothing");
    CHECK(with_folder().starts_with(at("ca-crl.pem") + "contains no PEM list of revoked"));

    const std::string good(64, 'a');
    CHECK(with_keys("alice:" + good + "\r\n\nbob:" + good) == "");
    const std::pair<std::string, const char*> rows[] = {
        {"", "k: has no users; "},
        {"alice\n", "k:1: no ':'; write user:hexkey"},
        {"a:" + good + "\n\n:" + good, "k:3: the user's name is empty"},
        {"alice:abc", "k:1: the key of 'alice' has 3 digits; "},
        {"alice:" + std::string(30, '1'), "k:1: the key of 'alice' has 30 digits; "},
        {"alice:" + std::string(130, '1'), "k:1: the key of 'alice' has 130 digits; "},
        {"alice:" + std::string(31, '1') + "g", "k:1: the key of 'alice' contains characters"},
        {"a:" + good + "\na:" + good, "k:2: the user 'a' is listed twice"},
        {"\xef\xbb\xbf"  // a byte order mark is no part of a name
         "a:" +
             good + "\na:" + good,
         "k:2: the user 'a' is listed twice"},
        {"#616263:" + good, "k:1: names in hexadecimal"},
        {std::string(129, 'x') + ":" + good,
         "k:1: the user's name has 129 bytes; the maximum is 128"},
    };
    for (const auto& [text, reason] : rows) {
        CAPTURE(text);
        const std::string wrong = with_keys(text);
        CHECK(wrong.starts_with(files.folder() + "/" + reason));
        CHECK_FALSE(contains(wrong, good));
    }
    CHECK(with_keys("alice:" + good, 0644).starts_with(at("k") + "contains a secret"));
    CHECK(said({TlsMode::required, "", true, files.folder()}) ==
          files.folder() + ": is not a regular file");
}

TEST_CASE("tls: an export that requires TLS needs TLS to be enabled") {
    config::Options options;
    options.exports.emplace_back();
    options.exports[0].name = "x";
    options.exports[0].tls_required = true;
    CHECK(error_of([&] { return TlsContext::load(options); }) ==
          "export 'x': it requires TLS, but TLS is off; set tls.mode to optional or required");
    options.exports[0].tls_required = false;
    CHECK(TlsContext::load(options) == nullptr);
}

TEST_CASE("tls: an access rule with a TLS identity needs the TLS setting that it depends on") {
    const TlsFiles files;
    const auto said = [&](const config::AccessRule& rule, const config::TlsOptions& tls) {
        config::Options options;
        options.tls = tls;
        options.exports.emplace_back();
        options.exports[0].name = "x";
        options.exports[0].access = {rule};
        return error_of([&] { return TlsContext::load(options); });
    };
    config::AccessRule by_name;
    by_name.tls_name = "a.example";
    config::AccessRule by_key;
    by_key.psk_user = "alice";
    using enum config::TlsMode;
    const std::string keys = files.path("keys.psk");
    CHECK(said(by_name, {optional, files.folder(), true, ""}) == "");
    CHECK(said(by_key, {optional, "", true, keys}) == "");
    for (const config::TlsOptions& tls : {config::TlsOptions{off, files.folder(), true, ""},
                                          {required, files.folder(), false, ""},
                                          {required, "", true, keys}}) {
        CHECK(said(by_name, tls)
                  .starts_with("export 'x': access[0]: tls_name requires client certificates"));
    }
    for (const config::TlsOptions& tls :
         {config::TlsOptions{off, "", true, keys}, {required, files.folder(), true, ""}}) {
        CHECK(
            said(by_key, tls).starts_with("export 'x': access[0]: psk_user requires shared keys"));
    }
}

}  // namespace
}  // namespace gpunbd::server::test
