// Runs sessions on a real worker in its own thread, over devices with scripted failures.
#pragma once

#include <boost/asio/post.hpp>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <future>
#include <memory>
#include <string_view>
#include <thread>
#include <vector>

#include "server/nbd/worker.hpp"
#include "storage/devices/faulty/faulty_device.hpp"
#include "tests/server/client.hpp"
#include "tests/server/model.hpp"
#include "tests/storage/memory_device.hpp"

namespace gpunbd::server::test {

constexpr std::uint32_t kib = 1 << 10;
constexpr std::uint32_t mib = 1 << 20;

struct RigOptions {
    std::string_view devices =
        "s";  // one character each: 'h' is addressed in place, 's' through staging memory
    std::uint64_t page_size = 32 * kib;
    std::uint64_t size = 8 * 32 * kib + 5000;
    std::uint64_t capacity = std::uint64_t{1} << 40;  // bytes of each device
    storage::Provision provision = storage::Provision::thin;
    storage::ChannelOptions channels = {.chunk_size = 8 * kib, .slots = 2, .pinned = 32 * kib};
    SessionLimits limits = {};
    std::uint64_t in_flight = std::uint64_t{1} << 40;  // bytes, limit of the worker
    bool trace = false;
    bool kept = false;  // like exports whose contents outlive the server
    std::chrono::milliseconds stall_limit = Worker::default_stall_limit;
    std::shared_ptr<const TlsContext> tls = nullptr;  // null: TLS is off
};

enum class Transport { unix_, tcp };

class Rig {
 public:
    explicit Rig(const RigOptions& options = {});
    ~Rig();

    // Connects a socket to the worker and returns the client's end.
    int connect_socket(Transport transport = Transport::unix_);
    Client connect(const Handshake& handshake = {}, Transport transport = Transport::unix_);
    // Connects and does the handshake.
    Client enter(const Handshake& handshake = {}, Transport transport = Transport::unix_);
    // The same, and sends these requests. The worker gets the socket when it contains all of that,
    // so that a slow test does not exceed the time limits of the worker.
    Client enter_at_once(const std::vector<Ask>& asks = {});
    std::shared_ptr<const Export> make_export(std::string name, std::uint64_t size);
    std::uint64_t pages() const { return (options.size - 1) / options.page_size + 1; }

    template <typename Call>
    auto on_worker(Call call) {
        return on_worker_with([call = std::move(call)](WorkerContext&) { return call(); });
    }
    template <typename Call>
    auto on_worker_with(Call call) {
        WorkerContext* context = nullptr;
        std::packaged_task<decltype(call(*context))()> task([&] { return call(*context); });
        auto result = task.get_future();
        worker.post([&](WorkerContext& its) {
            context = &its;
            task();
        });
        wait(result);
        return result.get();
    }
    // Waits until the worker has processed all events that are ready.
    void let_run();
    // Also waits until no copy is in flight.
    void settle();
    void drain() {
        worker.drain_sessions();
        on_worker([] {});
    }
    void cut() {
        worker.cut_sessions();
        on_worker([] {});
    }
    bool busy() {
        return on_worker_with([](WorkerContext& its) { return its.channels.busy(); });
    }

    // Waits until every session has ended.
    void wait_until_left();
    // Waits for the sessions to end, and checks that no staging memory is lent and nothing is in
    // flight. First closes these clients, or vectors of clients.
    void check_over();
    void check_over(auto&... clients) {
        (close(clients), ...);
        check_over();
    }
    // The same, and checks that every page can be allocated. Discards the contents of the volume.
    void check_clean();
    void check_clean(auto&... clients) {
        (close(clients), ...);
        check_clean();
    }
    // Bytes that the requests of the worker are charged with.
    std::uint64_t budget_used() {
        return on_worker_with([](WorkerContext& its) { return its.budget.used(); });
    }

    const RigOptions options;
    storage::FaultScript script;  // of all staged devices
    std::vector<storage::test::MemoryDevice*> memories;
    std::vector<std::unique_ptr<storage::Device>> devices;
    ExportRegistry exports;
    std::shared_ptr<storage::Volume> volume;
    Worker worker;

 private:
    using IsBusy = bool (*)(WorkerContext&);
    struct Rounds;
    // Waits until the worker has had some rounds in succession in which it was not busy.
    void run_rounds(IsBusy is_busy);
    static void close(Client& client) { client.close(); }
    static void close(std::vector<Client>& clients) {
        for (Client& each : clients) each.close();
    }
    static void wait(const auto& future) {
        if (future.wait_for(std::chrono::milliseconds(guard)) != std::future_status::ready) hang();
    }
    [[noreturn]] static void hang();
    std::shared_ptr<storage::Volume> make_volume(std::uint64_t size);
    void serve(int fd);

    std::thread thread_;
};

// The number of logged lines of level error. Each is an exception at the top of a session.
std::size_t logged_errors();
void forget_logged_errors();

}  // namespace gpunbd::server::test
