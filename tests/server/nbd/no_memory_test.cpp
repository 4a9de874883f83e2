// Replays the happy script while allocations of the worker fail in turn. At worst the connection
// ends, and it leaks nothing.
#include "server/net/transport/tls_context.hpp"
#include "tests/sanitized.hpp"
#include "tests/server/failing_allocation.hpp"
#include "tests/server/happy_script.hpp"
#include "tests/server/net/transport/tls_client.hpp"
#include "tests/server/net/transport/tls_files.hpp"
#include "tests/test.hpp"

namespace gpunbd::server::test {
namespace {

enum class Ending { disconnect, drain };

// With a sanitizer, each variant fails a part of the allocations: their code is mostly the same.
constexpr std::int64_t allocation_stride = gpunbd::test::is_sanitized ? 5 : 1;
constexpr std::int64_t tls_allocation_stride = gpunbd::test::is_sanitized ? 15 : 2;  // percent

struct Tls {
    std::shared_ptr<const TlsContext> context = nullptr;  // null: without TLS
    TlsClientOptions client = {};
};

// Sets rates that delay most requests of the script.
void hold_back(Rig& rig) {
    config::ExportOptions options;
    options.rates.iops = 1000;
    options.rates.burst = std::chrono::seconds(0);
    options.rates_per_peer = options.rates;
    rig.exports.snapshot()->front()->use->apply(options);
}

// Runs the script until the connection ends. Each reply has to be correct.
void play(Rig& rig, Client client, const Variant& variant, Model& model, Ending ending) {
    if (client.shake_hands() != 0) return;
    for (const Ask& ask : happy_script(variant)) {
        const auto answer = client.answer_or_end(client.send(ask));
        const bool succeeded = answer && answer->error == Error::none;
        model.apply(ask, succeeded);
        if (!answer) return;
        if (succeeded && ask.type == CommandType::read) model.check(ask, *answer);
    }
    if (ending == Ending::disconnect) client.send({CommandType::disc});
    if (ending == Ending::drain) rig.drain();
    CHECK_FALSE(client.next().has_value());
}

// Returns false if no allocation has failed.
bool replay(const Variant& variant, std::int64_t number, std::int64_t count, Ending ending,
            bool with_rates = false, const Tls& tls = {}) {
    CAPTURE(number);
    RigOptions options{.devices = variant.devices, .tls = tls.context};
    Rig rig(options);
    if (with_rates) hold_back(rig);
    Model model(options.size);
    rig.on_worker([] { failing_allocation::take_part(); });
    failing_allocation::arm(number, count);
    if (tls.context) {
        const TlsGoBetween between(rig.connect_socket(), tls.client);
        play(rig, Client(between.client_end(), variant.handshake()), variant, model, ending);
    } else {
        play(rig, rig.connect(variant.handshake()), variant, model, ending);
    }
    rig.wait_until_left();
    const bool failed = failing_allocation::disarm();
    {
        Client fresh = rig.enter(variant.handshake());
        const Ask all{CommandType::read, 0, static_cast<std::uint32_t>(options.size)};
        const Ask write{CommandType::write, 100, 3 * page, 0, 9};
        for (const Ask& ask : {all, write, all}) model.ask(fresh, ask);
    }
    rig.wait_until_left();
    CHECK(rig.budget_used() == 0);
    CHECK(rig.on_worker_with([](WorkerContext& its) { return its.scheduler.working(); }) == 0);
    forget_logged_errors();  // the failures are logged as errors
    rig.check_clean();
    return failed;
}

void replay_all(const Variant& variant, std::int64_t count, Ending ending,
                bool with_rates = false) {
    CAPTURE(variant.name);
    CAPTURE(count);
    static std::int64_t calls = 0;
    std::int64_t number = 1 + calls++ % allocation_stride;
    while (replay(variant, number, count, ending, with_rates)) number += allocation_stride;
    CHECK(number > 50);  // a smaller number means that allocations are not counted
}

TEST_CASE("no memory: the server survives each allocation failing once") {
    for (const Variant& variant : variants) replay_all(variant, 1, Ending::disconnect);
}

TEST_CASE("no memory: the server ends its connections if any allocation fails once") {
    replay_all(variants[0], 1, Ending::drain);
}

TEST_CASE("no memory: delayed requests survive each allocation failing once") {
    for (const Ending ending : {Ending::disconnect, Ending::drain}) {
        replay_all(variants[0], 1, ending, true);
    }
}

TEST_CASE("no memory: the server survives several consecutive failing allocations") {
    for (const std::int64_t count : {2, 3, 10, 1000}) {
        replay_all(variants[0], count, Ending::disconnect);
    }
}

// This includes the many allocations of OpenSSL.
TEST_CASE("no memory: the server survives each allocation of a TLS connection failing once") {
    const TlsFiles files;
    const auto context = context_of(files, config::TlsMode::optional);
    const Tls by_certificate{context, with_certificate(files)};
    const Tls by_key{context,
                     {.version = TLS1_2_VERSION, .user = "alice", .key = TlsFiles::alices_key}};
    for (const Tls& tls : {by_certificate, by_key}) {
        for (const std::int64_t count : {1, 1000}) {
            std::int64_t number = 1;
            while (replay(variants[0], number, count, Ending::disconnect, false, tls)) {
                number += 1 + number * tls_allocation_stride / 100;
            }
            CHECK(number > 500);
        }
    }
}

}  // namespace
}  // namespace gpunbd::server::test
