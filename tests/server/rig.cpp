#include "tests/server/rig.hpp"

#include <sys/socket.h>

#include "tests/protocol/wire.hpp"
#include "tests/test.hpp"

namespace gpunbd::server::test {

namespace {

// Other threads run while the test's thread waits, the worker's sockets are polled between rounds.
constexpr int waits_to_settle = 12;
constexpr int rounds_per_wait = 5;
// Exceeds the inline buffer of std::string, so that copies allocate memory, as with real names.
constexpr const char* listener_name = "unix socket /run/gpunbd/socket-of-a-test";

class KeepsAll final : public storage::KeptParts {
    bool keep_table(const OwnedFd&) noexcept override { return true; }
    bool keep_directory(const OwnedFd&) noexcept override { return true; }
    bool keep(std::uint32_t, std::uint32_t, const OwnedFd&) noexcept override { return true; }
    void drop(std::uint32_t, std::uint32_t) noexcept override {}
    bool keeps() const noexcept override { return true; }
};

}  // namespace

Rig::Rig(const RigOptions& with)
    : options(with), worker(with.channels, with.in_flight, with.trace, with.stall_limit) {
    for (const char kind : options.devices) {
        auto memory = std::make_unique<storage::test::MemoryDevice>(
            static_cast<std::uint32_t>(devices.size()),
            storage::test::MemoryDevice::Options{.capacity = options.capacity});
        memories.push_back(memory.get());
        if (kind == 's') {
            devices.push_back(storage::make_faulty_device(std::move(memory), script));
        } else {
            devices.push_back(std::move(memory));
        }
    }
    const auto first = make_export("", options.size);
    volume = first->volume;
    exports.replace({first});
    thread_ = std::thread([this] { worker.run(); });
}

Rig::~Rig() {
    worker.stop();
    thread_.join();
}

void Rig::hang() {
    std::fputs("the worker hangs\n", stderr);
    std::abort();  // the worker's thread cannot be ended otherwise
}

std::shared_ptr<storage::Volume> Rig::make_volume(std::uint64_t size) {
    std::vector<storage::Device*> all;
    all.reserve(devices.size());
    for (const auto& device : devices) all.push_back(device.get());
    return checked(storage::Volume::create(
        {.size = size,
         .page_size = options.page_size,
         .stripe_size = all.size() == 1 ? 0 : options.page_size,
         .provision = options.provision},
        all, {},
        {.name = {},
         .wanted = {},
         .kept_parts = options.kept ? std::make_shared<KeepsAll>() : nullptr}));
}

std::shared_ptr<const Export> Rig::make_export(std::string name, std::uint64_t size) {
    auto made = std::make_shared<Export>();
    made->volume = make_volume(size);
    made->activity = std::make_shared<ActivityMap>(size, made->volume->page_size());
    made->options.keep = options.kept;
    made->info = {.name = std::move(name), .size = size};
    return made;
}

int Rig::connect_socket(Transport transport) {
    const auto [client, server] =
        transport == Transport::tcp ? gpunbd::test::tcp_pair() : unix_pair();
    serve(server);
    return client;
}

void Rig::serve(int fd) {
    worker.serve(OwnedFd(fd), peer_of(fd, listener_name), exports, options.limits, nullptr,
                 options.tls);
}

Client Rig::connect(const Handshake& handshake, Transport transport) {
    return Client(connect_socket(transport), handshake);
}

Client Rig::enter(const Handshake& handshake, Transport transport) {
    Client client = connect(handshake, transport);
    client.enter();
    return client;
}

Client Rig::enter_at_once(const std::vector<Ask>& asks) {
    const auto [fd, server] = unix_pair();
    Client client(fd, {});
    const Bytes bytes = protocol::test::joined({handshake_bytes({}), client.expect_all(asks)});
    REQUIRE(client.offer(bytes) == bytes.size());
    serve(server);
    REQUIRE(client.shake_hands(true) == 0);
    return client;
}

// Tasks that post the next one to their own worker: tasks that the test's thread posts cost two
// thread switches each.
struct Rig::Rounds : std::enable_shared_from_this<Rig::Rounds> {
    Rounds(Worker& its_worker, IsBusy its_busy) : worker(its_worker), is_busy(its_busy) {}

    void post_next() {
        worker.post([self = shared_from_this()](WorkerContext& its) {
            self->was_busy = self->was_busy || self->is_busy(its);
            ++self->count == rounds_per_wait ? self->done.set_value() : self->post_next();
        });
    }

    Worker& worker;
    const IsBusy is_busy;
    int count = 0;
    bool was_busy = false;
    std::promise<void> done = {};
};

void Rig::run_rounds(IsBusy is_busy) {
    for (int quiet = 0; quiet != waits_to_settle; ++quiet) {
        const auto rounds = std::make_shared<Rounds>(worker, is_busy);
        const auto done = rounds->done.get_future();
        rounds->post_next();
        wait(done);
        if (rounds->was_busy) quiet = 0;
    }
}

void Rig::let_run() {
    run_rounds([](WorkerContext& its) {
        return its.scheduler.has_turns() || its.channels.page_completions().in_progress() != 0;
    });
}

void Rig::settle() {
    run_rounds([](WorkerContext& its) { return its.scheduler.has_turns() || its.channels.busy(); });
}

void Rig::wait_until_left() {
    const auto until = std::chrono::steady_clock::now() + std::chrono::milliseconds(guard);
    while (worker.connections() != 0) {
        if (std::chrono::steady_clock::now() > until) hang();
        std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
}

void Rig::check_over() {
    wait_until_left();
    settle();
    CHECK(on_worker_with([this](WorkerContext& its) {
        return std::all_of(devices.begin(), devices.end(), [&its](const auto& device) {
            its.channels.open(*device);
            storage::Channel& channel = its.channels.to(*device);
            return channel.read_staging().free_bytes() == channel.read_staging().largest() &&
                   channel.write_staging().free_bytes() == channel.write_staging().largest();
        });
    }));
    CHECK(logged_errors() == 0);
}

void Rig::check_clean() {
    check_over();
    for (std::uint64_t page = 0; page != pages(); ++page) volume->unmap(page);
    CHECK(volume->mapped_bytes() == 0);
    CHECK(volume->retired_bytes() == 0);  // no page is pinned
    if (options.provision == storage::Provision::thin) {
        for (auto* const memory : memories) CHECK(memory->slabs() <= 1);
    }
    script.allocations_until_failure = storage::FaultScript::never;
    for (std::uint64_t page = 0; page != pages(); ++page) {
        storage::PageRef ref;
        REQUIRE(volume->map(page, ref) == storage::Status::ok);
        const auto* const at = reinterpret_cast<const std::byte*>(ref.address());
        REQUIRE(*at == std::byte{0});
        REQUIRE(std::memcmp(at, at + 1, options.page_size - 1) == 0);
    }
    CHECK(volume->allocated_bytes() == pages() * options.page_size);
    for (std::uint64_t page = 0; page != pages(); ++page) volume->unmap(page);
}

}  // namespace gpunbd::server::test
