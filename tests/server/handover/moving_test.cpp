// A connection that pauses between two requests, or within the payload of a WRITE, and continues in
// the same process or in the one that takes it over.
#include "server/handover/message.hpp"
#include "tests/server/happy_script.hpp"
#include "tests/test.hpp"

namespace gpunbd::server::test {
namespace {

using MovingSessions = std::vector<std::unique_ptr<Session::Moving>>;

Worker::Busy busy(Rig& rig) {
    std::promise<Worker::Busy> busy;
    auto result = busy.get_future();
    rig.worker.count_busy([&](Worker::Busy unquiet) { busy.set_value(unquiet); });
    return result.get();
}

std::size_t count_busy(Rig& rig) { return busy(rig).sessions; }

void pause_all(Rig& rig) {
    rig.worker.quiesce_sessions();
    while (count_busy(rig) != 0) std::this_thread::yield();
}

MovingSessions move_all(Rig& rig) {
    std::promise<MovingSessions> moved;
    auto result = moved.get_future();
    rig.worker.move_sessions([&](MovingSessions moving) { moved.set_value(std::move(moving)); });
    return result.get();
}

// As it passes from process to process.
std::unique_ptr<ConnectionState> sent(ConnectionState state) {
    auto decoded = decode_connection(encode_connection(state));
    REQUIRE(decoded.has_value());
    auto& [there, later] = *decoded;
    CHECK(later == state.received.size());
    there.received = std::move(state.received);
    return std::make_unique<ConnectionState>(std::move(there));
}

void serve_elsewhere(Rig& rig, MovingSessions moving) {
    rig.worker.leave_sessions();
    rig.wait_until_left();
    for (const auto& each : moving) {
        Peer peer = peer_of(each->socket.get(), each->state.listener);
        rig.worker.serve(std::move(each->socket), std::move(peer), rig.exports, rig.options.limits,
                         nullptr, nullptr, sent(std::move(each->state)));
    }
}

// `there`: another process continues; otherwise this one does.
void interrupt(Rig& rig, bool there, std::size_t connections = 1) {
    pause_all(rig);
    MovingSessions moving = move_all(rig);
    CHECK(moving.size() == connections);
    if (there) {
        serve_elsewhere(rig, std::move(moving));
    } else {
        moving.clear();
        rig.worker.resume_sessions();
    }
}

RigOptions kept_rig(const Variant& variant) { return {.devices = variant.devices, .kept = true}; }

TEST_CASE("moving: between all requests") {
    for (const Variant& variant : variants) {
        for (const bool there : {false, true}) {
            CAPTURE(variant.name);
            CAPTURE(there);
            Rig rig(kept_rig(variant));
            Model model(rig.options.size);
            Client client = rig.enter(variant.handshake());
            for (const Ask& ask : happy_script(variant)) {
                model.ask(client, ask);
                interrupt(rig, there);
            }
        }
    }
}

TEST_CASE("moving: at each position within a WRITE") {
    for (const Variant& variant : variants) {
        for (const bool there : {false, true}) {
            CAPTURE(variant.name);
            CAPTURE(there);
            Rig rig(kept_rig(variant));
            Model model(rig.options.size);
            Client client = rig.enter(variant.handshake());
            const std::size_t all = encoded({CommandType::write, 100, 5 * page}, 1).size();
            std::uint32_t seed = 0;
            for (const std::size_t cut :
                 {std::size_t{1}, std::size_t{27}, std::size_t{28}, std::size_t{33},
                  std::size_t{40}, std::size_t{5000}, std::size_t{8 * kib}, std::size_t{page},
                  all / 2, all - 1}) {
                CAPTURE(cut);
                const Ask ask{CommandType::write, 100, 5 * page, 0, ++seed};
                const std::uint64_t cookie = client.expect(ask);
                const Bytes bytes = encoded(ask, cookie, variant.extended);
                client.send_bytes(std::span(bytes).first(cut));
                rig.let_run();
                interrupt(rig, there);
                client.send_bytes(std::span(bytes).subspan(cut, 1));
                rig.let_run();
                interrupt(rig, there);
                client.send_bytes(std::span(bytes).subspan(cut + 1));
                CHECK(client.answer(cookie).error == Error::none);
                model.apply(ask, true);
                model.ask(client, {CommandType::read, 0, rig.options.size});
            }
            rig.check_clean(client);
        }
    }
}

TEST_CASE("moving: a failed partial WRITE is answered once, and its remaining payload is dropped") {
    for (const bool there : {false, true}) {
        CAPTURE(there);
        Rig rig({.devices = "s", .kept = true});
        Client client = rig.enter({.structured = false});
        CHECK(client.ask({CommandType::write, 0, 5 * page}).error == Error::none);
        const Ask ask{CommandType::write, 100, 3 * page, 0, 2};
        const std::uint64_t cookie = client.expect(ask);
        const Bytes bytes = encoded(ask, cookie);
        rig.script.copies_until_failure = 0;
        client.send_bytes(std::span(bytes).first(page));
        rig.let_run();
        interrupt(rig, there);
        CHECK(client.answer(cookie).error == Error::eio);
        client.send_bytes(std::span(bytes).subspan(page));
        CHECK(client.ask({CommandType::write, 0, 10}).error == Error::none);
        rig.check_clean(client);
    }
}

TEST_CASE("moving: within a payload that is dropped, or describes a BLOCK_STATUS") {
    struct Row {
        const char* name;
        Ask ask;
        std::size_t cut;  // bytes that are sent before the pause
        Error error;
    };
    const Ask beyond_end{CommandType::write, 8 * page + 5000, 3 * page};
    const Ask status{CommandType::block_status, 0, page, protocol::command_flag::payload_len};
    const Row rows[] = {
        {"a refused WRITE after its header", beyond_end, protocol::extended_request_size,
         Error::enospc},
        {"a refused WRITE", beyond_end, page, Error::enospc},
        {"BLOCK_STATUS after its header", status, protocol::extended_request_size, Error::none},
        {"BLOCK_STATUS", status, protocol::extended_request_size + 5, Error::none},
    };
    for (const Row& row : rows) {
        for (const bool there : {false, true}) {
            CAPTURE(row.name);
            CAPTURE(there);
            Rig rig({.kept = true});
            Client client = rig.enter({.extended = true});
            const std::uint64_t cookie = client.expect(row.ask);
            const Bytes bytes = encoded(row.ask, cookie, true);
            client.send_bytes(std::span(bytes).first(row.cut));
            rig.let_run();
            interrupt(rig, there);
            client.send_bytes(std::span(bytes).subspan(row.cut, 1));
            rig.let_run();
            interrupt(rig, there);
            client.send_bytes(std::span(bytes).subspan(row.cut + 1));
            CHECK(client.answer(cookie).error == row.error);
            CHECK(client.ask({CommandType::write, 0, 10}).error == Error::none);
            rig.check_clean(client);
        }
    }
}

TEST_CASE("moving: a partial WRITE beyond the end of an export that shrank ends its connection") {
    Rig rig({.kept = true});
    Client client = rig.enter();
    Client writer = rig.enter();
    const Ask ask{CommandType::write, 6 * page, 2 * page};
    const Bytes bytes = encoded(ask, writer.expect(ask));
    writer.send_bytes(std::span(bytes).first(page));
    rig.let_run();
    REQUIRE(rig.volume->resize(4 * page).empty());
    const auto shrunk = std::make_shared<Export>(*rig.exports.snapshot()->front());
    shrunk->info.size = 4 * page;
    rig.exports.replace({shrunk});
    rig.worker.check_access([] {});
    rig.on_worker([] {});
    interrupt(rig, true);
    CHECK_FALSE(writer.next());
    CHECK(client.ask({CommandType::write, 0, 10}).error == Error::none);
    rig.check_over(client);
}

TEST_CASE(
    "moving: a partial WRITE beyond the end of an export that shrank is refused if none move") {
    Rig rig({.kept = true});
    Client writer = rig.enter();
    const Ask ask{CommandType::write, 6 * page, 2 * page};
    const std::uint64_t cookie = writer.expect(ask);
    const Bytes bytes = encoded(ask, cookie);
    writer.send_bytes(std::span(bytes).first(page));
    rig.let_run();
    rig.worker.quiesce_sessions();
    rig.on_worker([] {});
    REQUIRE(rig.volume->resize(4 * page).empty());
    rig.worker.check_access([] {});
    rig.on_worker([] {});
    rig.worker.resume_sessions();
    writer.send_bytes(std::span(bytes).subspan(page));
    CHECK(writer.answer(cookie).error == Error::enospc);
    CHECK(rig.volume->mapped_bytes() == 0);
    CHECK(writer.ask({CommandType::write, 0, 10}).error == Error::none);
    rig.check_clean(writer);
}

TEST_CASE("moving: cancelled before all requests are answered") {
    for (const Variant& variant : variants) {
        CAPTURE(variant.name);
        Rig rig(kept_rig(variant));
        Model model(rig.options.size);
        Client client = rig.enter(variant.handshake());
        for (std::uint32_t seed = 1; seed != 20; ++seed) {
            const Ask ask{CommandType::write, 100, 5 * page, 0, seed};
            const std::uint64_t cookie = client.expect(ask);
            const Bytes bytes = encoded(ask, cookie, variant.extended);
            client.send_bytes(std::span(bytes).first(seed * 4 * kib));
            rig.worker.quiesce_sessions();
            rig.worker.resume_sessions();
            rig.worker.quiesce_sessions();
            rig.worker.resume_sessions();
            client.send_bytes(std::span(bytes).subspan(seed * 4 * kib));
            CHECK(client.answer(cookie).error == Error::none);
            model.apply(ask, true);
            model.ask(client, {CommandType::read, 0, rig.options.size});
        }
    }
}

TEST_CASE("moving: unread requests move with the connection") {
    for (const bool there : {false, true}) {
        Rig rig({.devices = "h", .kept = true});
        Client client = rig.enter();
        Bytes many;
        std::vector<std::uint64_t> cookies;
        for (int i = 0; i != 3000; ++i) {
            const Ask ask{CommandType::read, 0, 10};
            cookies.push_back(client.expect(ask));
            const Bytes one = encoded(ask, cookies.back());
            many.insert(many.end(), one.begin(), one.end());
        }
        rig.worker.quiesce_sessions();
        client.send_bytes(many);
        interrupt(rig, there);
        for (const std::uint64_t cookie : cookies) {
            CHECK(client.answer(cookie).error == Error::none);
        }
    }
}

TEST_CASE("moving: connections in negotiation, or on exports that are not kept, do not move") {
    Rig rig({.kept = true});
    Client negotiating = rig.connect();
    rig.let_run();
    interrupt(rig, false, 0);
    negotiating.enter();
    CHECK(negotiating.ask({CommandType::write, 0, 10}).error == Error::none);
    Rig other;
    Client client = other.enter();
    interrupt(other, true, 0);
    client.check_end();
}

TEST_CASE("moving: a client that opens the export meanwhile pauses as well") {
    Rig rig({.kept = true});
    Client client = rig.connect();
    rig.let_run();
    pause_all(rig);
    client.enter();
    const std::uint64_t cookie = client.send({CommandType::write, 0, 10});
    rig.let_run();
    CHECK_FALSE(client.readable());
    rig.worker.resume_sessions();
    CHECK(client.answer(cookie).error == Error::none);
}

// A connection that cannot move: its session must notice the end of the pause in each state.
TEST_CASE("moving: a client that cannot move is disconnected at once in each state") {
    enum class Doing { nothing, requests, half_a_write, half_a_request, waiting_for_its_rate };
    for (const Variant& variant : variants) {
        for (const Doing doing : {Doing::nothing, Doing::requests, Doing::half_a_write,
                                  Doing::half_a_request, Doing::waiting_for_its_rate}) {
            for (const bool drained : {false, true}) {
                CAPTURE(variant.name);
                CAPTURE(static_cast<int>(doing));
                CAPTURE(drained);
                Rig rig(kept_rig(variant));
                if (doing == Doing::waiting_for_its_rate) {
                    auto slow = std::make_shared<Export>(*rig.exports.snapshot()->front());
                    slow->options.rates.iops = 1;
                    slow->options.rates.burst = std::chrono::seconds(0);
                    rig.exports.replace({slow});
                }
                Client client = rig.enter(variant.handshake());
                const Ask write{CommandType::write, 100, 5 * page};
                const Bytes bytes = encoded(write, client.expect(write), variant.extended);
                if (doing == Doing::half_a_write) client.send_bytes(std::span(bytes).first(50'000));
                if (doing == Doing::half_a_request) client.send_bytes(std::span(bytes).first(20));
                if (doing == Doing::requests || doing == Doing::waiting_for_its_rate) {
                    client.send_bytes(bytes);
                    for (int i = 0; i != 20; ++i) client.send({CommandType::read, 0, 10});
                }
                rig.let_run();
                pause_all(rig);
                if (doing == Doing::requests) client.send({CommandType::flush});
                drained ? rig.worker.drain_sessions() : rig.worker.leave_sessions();
                rig.wait_until_left();
                while (const auto answer = client.next()) CHECK(answer->error == Error::none);
                CHECK_FALSE(client.ended_within_an_answer());
                rig.check_clean();
            }
        }
    }
}

TEST_CASE("moving: a client with pending replies is disconnected after they are sent") {
    Rig rig({.kept = true});
    Client client = rig.enter();
    REQUIRE(client.ask({CommandType::write, 0, 8 * page}).error == Error::none);
    std::vector<std::uint64_t> cookies;
    for (int i = 0; i != 40; ++i) cookies.push_back(client.send({CommandType::read, 0, 8 * page}));
    rig.settle();
    rig.worker.quiesce_sessions();
    rig.settle();
    CHECK(count_busy(rig) == 1);
    rig.worker.leave_sessions();
    rig.settle();
    CHECK(rig.worker.connections() == 1);
    std::size_t answered = 0;
    while (const auto answer = client.next()) {
        CHECK(answer->error == Error::none);
        ++answered;
    }
    CHECK(answered > 0);
    CHECK_FALSE(client.ended_within_an_answer());
    rig.check_clean();
}

TEST_CASE(
    "moving: a client that waits for a device is not disconnected as one that does not read") {
    Rig rig({.kept = true});
    Client reader = rig.enter();
    Client deaf = rig.enter();
    REQUIRE(reader.ask({CommandType::write, 0, 8 * page}).error == Error::none);
    for (int i = 0; i != 40; ++i) deaf.send({CommandType::read, 0, 8 * page});
    rig.settle();
    rig.script.hold = true;
    const std::uint64_t held = reader.send({CommandType::read, 0, page});
    while (!rig.busy()) std::this_thread::yield();
    rig.worker.quiesce_sessions();
    CHECK(busy(rig).sessions == 2);
    CHECK(busy(rig).unread == 1);
    rig.worker.cut_unread_sessions("it did not read");
    CHECK(busy(rig).sessions == 1);
    CHECK(busy(rig).unread == 0);
    rig.script.hold = false;
    CHECK(reader.answer(held).error == Error::none);
    rig.worker.resume_sessions();
    CHECK(reader.ask({CommandType::flush}).error == Error::none);
    while (deaf.next()) {
    }
}

TEST_CASE("moving: a handshake that the successor cannot continue is closed at once") {
    for (const std::size_t sent : {0, 2, 4, 12, 20, 30}) {
        CAPTURE(sent);
        Rig rig({.limits = {.handshake = std::chrono::hours(1)}, .kept = true});
        Client client = rig.connect();
        const Bytes bytes = handshake_bytes({});
        client.send_bytes(std::span(bytes).first(sent));
        rig.let_run();
        pause_all(rig);
        CHECK(move_all(rig).empty());
        rig.worker.leave_sessions();
        rig.wait_until_left();
        rig.check_clean();
    }
}

TEST_CASE("moving: a changed export ends the connection") {
    Rig rig({.kept = true});
    Client client = rig.enter();
    pause_all(rig);
    MovingSessions moving = move_all(rig);
    REQUIRE(moving.size() == 1);
    moving.front()->state.negotiated.export_info.size += 512;
    serve_elsewhere(rig, std::move(moving));
    client.check_end();
    rig.check_clean();
}

}  // namespace
}  // namespace gpunbd::server::test
