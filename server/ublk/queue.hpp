// One queue of a device: takes requests of the kernel, runs them and answers them. It belongs to
// one worker and is used on its thread only, because the kernel accepts the commands of a queue
// from one thread only.
//
//   begin() --> serving --pause()--> paused
//                  ^                    |
//                  +----- resume() -----+
//
// It ends when the kernel has ended all commands (STOP_DEV).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "server/exports/export.hpp"
#include "server/nbd/admission.hpp"
#include "server/nbd/failure_log.hpp"
#include "server/nbd/worker_context.hpp"
#include "server/ublk/request.hpp"

namespace gpunbd::server::ublk {

class Queue final : public Scheduler::Runnable, private RequestOwner, private Budget::Waiter {
 public:
    struct Options {
        std::string device;  // "/dev/ublkb0"
        std::uint16_t depth = 0;
        std::uint64_t max_in_flight = 0;  // bytes, see CommandCost::in_flight
        std::shared_ptr<const Export> exported;
    };
    // `ended`: called once, when no command and no request is left. The queue may be destroyed
    // after run() has returned.
    Queue(WorkerContext& worker, std::unique_ptr<QueueIo> io, Options options,
          std::function<void()> ended);
    ~Queue();
    Queue(const Queue&) = delete;
    Queue& operator=(const Queue&) = delete;

    // Fetches the first requests. Opens channels, and throws as Channels::open() does.
    void begin();
    void limit_rates(RateLimits limits) { admission_.limit_rates(worker_.io, std::move(limits)); }
    // Takes what the kernel has for it, within the budget of a turn, and sends answers.
    void run() noexcept override;
    // Executes no more requests until resume(). Calls `quiet` when those in flight have been
    // answered. Without resume() the next server gets those that have arrived.
    void pause(std::function<void()> quiet);
    void resume();

 private:
    void take();
    void keep_arriving();
    bool flush();
    void take_request(Request& request);
    void execute(Request& request);
    // Of a request that does not execute.
    void refuse(Request& request, std::int32_t result);
    void answer(Request& request, std::int32_t result);
    void ended(Request& request, storage::Status status) override;
    void budget_has_room() override { worker_.scheduler.run_soon(*this); }
    void count_end(const Request& request);
    void report_if_quiet();
    void report_end_if_over();

    WorkerContext& worker_;
    const std::unique_ptr<QueueIo> io_;
    const Options options_;
    const std::function<void()> ended_;
    storage::ClientAccount staging_;
    const storage::TransferContext transfer_;
    Payload payload_;
    Admission admission_;
    FailureLog failure_log_;
    const std::shared_ptr<ConnectionCounters> counters_;
    const std::shared_ptr<ExportCounters> of_export_;
    std::vector<std::unique_ptr<Request>> requests_;  // by tag
    Request* held_ = nullptr;                         // by the rates; null: none
    std::int64_t turn_left_ = 0;                      // see CommandCost::turn
    std::uint32_t commands_ = 0;                      // tags that the kernel has
    std::uint32_t in_flight_ = 0;                     // tags that the server has
    bool answered_ = false;                           // since the last submit()
    bool running_ = false;
    bool taking_ = true;               // requests of the kernel
    std::vector<std::uint16_t> kept_;  // tags of requests that have arrived during the pause
    std::function<void()> quiet_;      // empty: not pausing
    bool over_ = false;
};

}  // namespace gpunbd::server::ublk
