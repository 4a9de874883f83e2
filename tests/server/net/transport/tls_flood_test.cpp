// TLS clients that send thousands of records that cost the server time but carry little or no
// payload. A turn of such a connection stays short, and a flood of records without payload ends it.
#include <fcntl.h>
#include <openssl/err.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "server/net/transport/tls_stream.hpp"
#include "tests/server/captured_log.hpp"
#include "tests/server/happy_script.hpp"
#include "tests/server/net/transport/tls_client.hpp"
#include "tests/server/net/transport/tls_files.hpp"
#include "tests/server/net/transport/tls_records.hpp"
#include "tests/test.hpp"

namespace gpunbd::server::test {
namespace {

using protocol::test::joined;
using RecordType = TlsRecords::Type;
using StreamWait = gpunbd::server::Transport::Wait;

constexpr std::size_t work_of_turn = 256 * kib;  // in bytes of payload
constexpr std::size_t largest = 48 * kib;        // for one record

// The records that a flood repeats. `next`: the next payload, for records that carry some.
struct Flood {
    std::string name;
    int version;
    std::function<Bytes(TlsRecords&, std::span<const std::byte> next)> records;
    bool control = true;  // without payload
};

Bytes unknown_option() { return protocol::wire::option(77); }

// The initializer lists of joined() fix the order in which the records are sealed.
const Flood floods[] = {
    {"key updates", TLS1_3_VERSION, [](TlsRecords& its, auto) { return its.update_key(); }},
    {"key updates that want others", TLS1_3_VERSION,
     [](TlsRecords& its, auto) { return its.update_key(true); }},
    {"key updates, each behind a byte", TLS1_3_VERSION,
     [](TlsRecords& its, auto next) {
         return joined({its.seal(RecordType::data, next.first(1)), its.update_key()});
     }},
    {"empty records, 1.3", TLS1_3_VERSION,
     [](TlsRecords& its, auto next) {
         return joined({its.seal(RecordType::data, next.first(1)), its.seal(RecordType::data, {})});
     }},
    {"empty records that are long", TLS1_3_VERSION,
     [](TlsRecords& its, auto next) {
         return joined(
             {its.seal(RecordType::data, next.first(1)), its.seal(RecordType::data, {}, 16'000)});
     }},
    {"empty records, 1.2", TLS1_2_VERSION,
     [](TlsRecords& its, auto next) {
         return joined({its.seal(RecordType::data, next.first(1)), its.seal(RecordType::data, {})});
     }},
    {"renegotiations", TLS1_2_VERSION, [](TlsRecords& its, auto) { return its.renegotiate(); }},
    {"renegotiations, each behind a byte", TLS1_2_VERSION,
     [](TlsRecords& its, auto next) {
         return joined({its.seal(RecordType::data, next.first(1)), its.renegotiate()});
     }},
    {"warnings, each behind a byte", TLS1_2_VERSION,
     [](TlsRecords& its, auto next) {
         const Bytes user_canceled{std::byte{1}, std::byte{90}};
         return joined({its.seal(RecordType::data, next.first(1)),
                        its.seal(RecordType::alert, user_canceled)});
     }},
    {"single bytes, 1.3", TLS1_3_VERSION,
     [](TlsRecords& its, auto next) { return its.seal(RecordType::data, next.first(1)); }, false},
    {"single bytes, 1.2", TLS1_2_VERSION,
     [](TlsRecords& its, auto next) { return its.seal(RecordType::data, next.first(1)); }, false},
    {"padded bytes", TLS1_3_VERSION,
     [](TlsRecords& its, auto next) { return its.seal(RecordType::data, next.first(1), 16'000); },
     false},
};

// A stream after its handshake, and the client at the other end.
class StreamPair {
 public:
    StreamPair(const TlsFiles& files, int version) {
        ::fcntl(both_.second, F_SETFL, O_NONBLOCK);
        stream.emplace(context_of(files), both_.second, buffers_);
        client.emplace(both_.first, with_certificate(files, version));
        records.emplace(client->ssl());
        std::thread shaking([&] { words_ = client->shake_hands(); });
        while (!stream->established() && !stream->shake_hands().ended) std::this_thread::yield();
        if (!stream->established()) ::shutdown(both_.second, SHUT_RDWR);  // unblocks the client
        shaking.join();
        CAPTURE(stream->failure());
        REQUIRE(words_ == "");
        records->begin();
        ::fcntl(both_.first, F_SETFL, O_NONBLOCK);
    }
    ~StreamPair() {
        stream.reset();
        ::close(both_.second);
    }
    StreamPair(const StreamPair&) = delete;
    StreamPair& operator=(const StreamPair&) = delete;

    auto receive() {
        iovec piece{.iov_base = room_.data(), .iov_len = room_.size()};
        return stream->receive({&piece, 1});
    }

    std::optional<TlsStream> stream;
    std::optional<TlsClient> client;
    std::optional<TlsRecords> records;

 private:
    const std::pair<int, int> both_ = unix_pair();
    Pool<ReceiveBuffer> buffers_{4};
    std::vector<char> room_ = std::vector<char>(mib);
    std::string words_;
};

TEST_CASE("tls: one receive call does a bounded amount of work, for any input") {
    const TlsFiles files;
    for (const Flood& flood : floods) {
        for (const bool serving : {false, true}) {
            CAPTURE(flood.name);
            CAPTURE(serving);
            StreamPair pair(files, flood.version);
            if (serving) pair.stream->begin_serving();
            const Bytes payload(1, std::byte{7});
            std::size_t sent = 0;  // records of the flood
            std::size_t calls = 0;
            std::size_t bytes = 0;
            std::size_t work = 0;
            Bytes left;
            for (bool ended = false; !ended && (sent != 5000 || !left.empty());) {
                while (sent != 5000 || !left.empty()) {  // until the socket is full
                    if (left.empty()) {
                        left = flood.records(*pair.records, payload);
                        ++sent;
                    }
                    const ssize_t gone = ::send(pair.client->fd(), left.data(), left.size(), 0);
                    if (gone <= 0) break;
                    left.erase(left.begin(), left.begin() + gone);
                }
                for (bool waits = false; !ended && !waits; ++calls) {
                    const auto got = pair.receive();
                    CHECK(got.work <= work_of_turn + largest);
                    CHECK(got.bytes <=
                          work_of_turn / kib);  // each record is charged at least 1 KiB
                    bytes += got.bytes;
                    work += got.work;
                    ended = got.ended;
                    waits = got.wait != StreamWait::none;
                }
                CHECK((!ended || flood.control));
            }
            if (flood.control) {
                CHECK(contains(pair.stream->failure(), "more TLS records without data"));
                CHECK(bytes <= ControlAllowance::most + 1);
                CHECK(calls > 1);
            } else {
                CHECK(pair.stream->failure() == "");
                CHECK(bytes == sent);
            }
        }
    }
}

TEST_CASE("tls: full records are charged as their payload") {
    const TlsFiles files;
    for (const int version : {TLS1_2_VERSION, TLS1_3_VERSION}) {
        StreamPair pair(files, version);
        pair.stream->begin_serving();
        int big = 4 << 20;
        ::setsockopt(pair.client->fd(), SOL_SOCKET, SO_SNDBUF, &big, sizeof big);
        const Bytes payload(16 * kib, std::byte{7});
        std::size_t bytes = 0;
        std::size_t work = 0;
        for (int i = 0; i != 100; ++i) {
            ::fcntl(pair.client->fd(), F_SETFL, 0);
            pair.client->send_raw(pair.records->seal(RecordType::data, payload));
            const auto got = pair.receive();
            bytes += got.bytes;
            work += got.work;
        }
        CHECK(bytes == 100 * payload.size());
        CHECK(work >= bytes);
        CHECK(work <= bytes + bytes / 100);
    }
}

TEST_CASE("tls: a client may change keys as often as its payload permits") {
    const TlsFiles files;
    StreamPair pair(files, TLS1_3_VERSION);
    pair.stream->begin_serving();
    constexpr std::uint64_t between = ControlAllowance::payload / ControlAllowance::most;
    const Bytes payload(16 * kib, std::byte{7});
    ::fcntl(pair.client->fd(), F_SETFL, 0);
    for (std::uint64_t i = 0; i != 2 * ControlAllowance::most; ++i) {
        Bytes next = pair.records->update_key();
        std::uint64_t received = 0;
        for (std::uint64_t left = between; left != 0; left -= payload.size()) {
            const Bytes data = pair.records->seal(RecordType::data, payload);
            next.insert(next.end(), data.begin(), data.end());
            pair.client->send_raw(next);
            next.clear();
            for (;;) {
                const auto got = pair.receive();
                REQUIRE_FALSE(got.ended);
                received += got.bytes;
                if (got.wait != StreamWait::none) break;
            }
        }
        REQUIRE(received == between);
    }
}

// --- whole sessions

void open_export(TlsClient& client, TlsRecords& records) {
    client.send_raw(records.seal(RecordType::data, served_options()));
    REQUIRE(client.take(answer_to_go).has_value());
}

TEST_CASE("tls: a flood of records without payload ends the connection, before GO and after it") {
    const TlsFiles files;
    for (const Flood& flood : floods) {
        if (!flood.control) continue;
        for (const bool served : {false, true}) {
            CAPTURE(flood.name);
            CAPTURE(served);
            const CapturedLog log{spdlog::level::info};
            Rig rig({.tls = context_of(files)});
            TlsClient client(rig.connect_socket(), with_certificate(files, flood.version));
            TlsRecords records(client.ssl());
            client.enter();
            records.begin();
            if (served) open_export(client, records);
            // Valid payload: a request or an option, one byte per record.
            const Bytes payload = served ? encoded({CommandType::flush}, 1) : unknown_option();
            for (std::size_t i = 0; i != 100'000; ++i) {
                const Bytes next =
                    flood.records(records, std::span(payload).subspan(i % payload.size()));
                if (::send(client.fd(), next.data(), next.size(), MSG_NOSIGNAL) < 0) break;
                REQUIRE(i < 50'000);
            }
            CHECK(client.hangs_up());
            client.close();
            rig.check_clean();
            CHECK(log.count("more TLS records without data") == 1);
        }
    }
}

std::size_t unread(int fd) {
    int bytes = 0;
    REQUIRE(::ioctl(fd, FIONREAD, &bytes) == 0);
    return static_cast<std::size_t>(bytes);
}

// A client whose flood is pending in its socket: requests if it is served, otherwise options, one
// byte per record. `answers`: the number of bytes of all replies.
struct Flooder {
    std::unique_ptr<TlsClient> client;
    Bytes records = {};
    std::size_t answers = 0;
};

Flooder make_flooder(Rig& rig, const TlsFiles& files, int version, bool served) {
    constexpr std::size_t most = 150 * kib;  // fits into a Unix socket
    Flooder its{
        std::make_unique<TlsClient>(rig.connect_socket(), with_certificate(files, version))};
    TlsRecords records(its.client->ssl());
    its.client->enter();
    records.begin();
    const Bytes payload = served ? encoded({CommandType::flush}, 1) : unknown_option();
    if (served) open_export(*its.client, records);
    constexpr std::size_t reply_to_flush = 16;
    const std::size_t reply_to_option = 20 + std::string("unsupported option").size();
    while (its.records.size() < most) {
        for (std::size_t i = 0; i != payload.size(); ++i) {
            const Bytes next = records.seal(RecordType::data, std::span(payload).subspan(i, 1));
            its.records.insert(its.records.end(), next.begin(), next.end());
        }
        its.answers += served ? reply_to_flush : reply_to_option;
    }
    ::fcntl(its.client->fd(), F_SETFL, O_NONBLOCK);
    return its;
}

// Counts the answers to the others. CPU time would include that for which a host stops this
// machine.
TEST_CASE("tls: a request waits only for a small part of the single-byte records of others") {
    constexpr std::size_t crowd = 4;
    const TlsFiles files;
    for (const int version : {TLS1_2_VERSION, TLS1_3_VERSION}) {
        for (const bool served : {false, true}) {
            CAPTURE(version);
            CAPTURE(served);
            Rig rig({.tls = context_of(files, config::TlsMode::optional)});
            Client reader = rig.enter();
            std::vector<Flooder> flooders;
            for (std::size_t i = 0; i != crowd; ++i) {
                flooders.push_back(make_flooder(rig, files, version, served));
            }
            rig.let_run();
            const auto answered = [&] {  // in bytes
                std::size_t bytes = 0;
                for (const Flooder& each : flooders) bytes += unread(each.client->fd());
                return bytes;
            };
            std::size_t meanwhile = 0;
            std::size_t all = 0;
            rig.on_worker_with([&](WorkerContext& its) {
                for (const Flooder& each : flooders) each.client->send_raw(each.records);
                its.scheduler.round();
                const std::size_t before = answered();
                reader.send({CommandType::read, 0, 4 * kib});
                while (!reader.readable()) its.scheduler.round();
                meanwhile = answered() - before;
                while (std::any_of(flooders.begin(), flooders.end(), [](const Flooder& each) {
                    return unread(each.client->fd()) < each.answers;
                })) {
                    its.scheduler.round();
                }
                all = answered();
            });
            CHECK(meanwhile < all / 3);
            flooders.clear();
            reader.close();
            rig.check_over();
        }
    }
}

// --- during the TLS handshake

// The first message of OpenSSL's client, without record headers.
Bytes client_hello() {
    const std::unique_ptr<SSL_CTX, decltype(&::SSL_CTX_free)> context(
        ::SSL_CTX_new(::TLS_client_method()), ::SSL_CTX_free);
    const std::unique_ptr<SSL, decltype(&::SSL_free)> ssl(::SSL_new(context.get()), ::SSL_free);
    BIO* const out = ::BIO_new(::BIO_s_mem());
    ::SSL_set_bio(ssl.get(), ::BIO_new(::BIO_s_mem()), out);
    ::SSL_connect(ssl.get());
    ::ERR_clear_error();
    Bytes bytes(::BIO_ctrl_pending(out));
    REQUIRE(::BIO_read(out, bytes.data(), static_cast<int>(bytes.size())) > 5);
    bytes.erase(bytes.begin(), bytes.begin() + 5);
    return bytes;
}

// One handshake record per byte.
Bytes in_single_bytes(std::span<const std::byte> message) {
    Bytes out;
    for (const std::byte each : message) {
        for (const int next : {22, 3, 1, 0, 1}) out.push_back(static_cast<std::byte>(next));
        out.push_back(each);
    }
    return out;
}

TEST_CASE("tls: a ClientHello may be split into many records, but not into any number") {
    const TlsFiles files;
    {
        Rig rig({.tls = context_of(files)});
        TlsClient client(rig.connect_socket(), with_certificate(files, TLS1_3_VERSION));
        REQUIRE(client.ask_for_tls());
        client.send_raw(in_single_bytes(client_hello()));
        std::array<std::byte, 6> answer;  // of a ServerHello
        REQUIRE(::recv(client.fd(), answer.data(), answer.size(), MSG_WAITALL) == 6);
        CHECK(answer[0] == std::byte{22});
        CHECK(answer[5] == std::byte{2});
        client.close();
        rig.check_over();
    }
    const CapturedLog log{spdlog::level::info};
    Rig rig({.tls = context_of(files)});
    TlsClient client(rig.connect_socket(), with_certificate(files, TLS1_3_VERSION));
    REQUIRE(client.ask_for_tls());
    Bytes endless{std::byte{1}, std::byte{1}, std::byte{0}, std::byte{0}};  // announces 64 KiB
    endless.resize(endless.size() + 64 * kib);
    endless = in_single_bytes(endless);
    ::send(client.fd(), endless.data(), endless.size(), MSG_NOSIGNAL);
    CHECK(client.hangs_up());
    client.close();
    rig.check_over();
    CHECK(log.count("the TLS handshake failed: the client sent too many records") == 1);
}

TEST_CASE("tls: a request does not wait behind the records of a handshake") {
    constexpr std::size_t crowd = 8;
    const TlsFiles files;
    Rig rig({.tls = context_of(files, config::TlsMode::optional)});
    Client reader = rig.enter();
    auto clients = clients_before_handshake(rig, files, crowd);
    Bytes hello{std::byte{1}, std::byte{0}, std::byte{0x40}, std::byte{0}};  // announces 16 KiB
    hello.resize(1500);
    const Bytes records = in_single_bytes(hello);
    const auto left = rig.on_worker_with([&](WorkerContext& its) {
        for (const auto& each : clients) each->send_raw(records);
        for (int i = 0; i != 3; ++i) its.scheduler.round();
        reader.send({CommandType::read, 0, 4 * kib});
        while (!reader.readable()) its.scheduler.round();
        std::vector<int> unread;
        for (const auto& each : clients) {
            unread.push_back(0);
            REQUIRE(::ioctl(each->fd(), TIOCOUTQ, &unread.back()) == 0);
        }
        return unread;
    });
    // Most of the data that they have sent is still unread.
    CHECK(std::count_if(left.begin(), left.end(), [](int bytes) { return bytes > 0; }) ==
          static_cast<std::ptrdiff_t>(crowd));
    clients.clear();
    reader.close();
    rig.check_over();
}

}  // namespace
}  // namespace gpunbd::server::test
