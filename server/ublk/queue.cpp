#include "server/ublk/queue.hpp"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <utility>
#include <variant>

#include "server/nbd/failure_log.hpp"
#include "storage/assertions/assert.hpp"
#include "storage/base/log_line.hpp"
#include "storage/devices/store.hpp"

namespace gpunbd::server::ublk {

using protocol::Command;
using protocol::CommandType;
using storage::Status;

namespace {

constexpr std::int32_t io_error = -5;   // -EIO
constexpr std::int32_t no_space = -28;  // -ENOSPC

// Empty: the operation is unknown or not permitted, or the range is not in the export.
std::optional<Command> command_of(const Descriptor& descriptor, const protocol::ExportInfo& info) {
    Command command{.offset = descriptor.start_sector << sector_shift,
                    .length = std::uint64_t{descriptor.sectors} << sector_shift,
                    .fua = (descriptor.operation_and_flags & fua) != 0};
    switch (static_cast<Op>(descriptor.operation_and_flags & operation_mask)) {
        case Op::read:
            command.type = CommandType::read;
            break;
        case Op::write:
            command.type = CommandType::write;
            break;
        case Op::flush:
            return Command{.type = CommandType::flush};
        case Op::discard:
            command.type = CommandType::trim;
            break;
        case Op::write_zeroes:
            command.type = CommandType::write_zeroes;
            command.no_hole = (descriptor.operation_and_flags & no_unmap) != 0;
            break;
        default:
            return std::nullopt;
    }
    if (info.read_only && command.type != CommandType::read) return std::nullopt;
    if (descriptor.start_sector > info.size >> sector_shift ||
        !protocol::lies_in(info.size, command.offset, command.length)) {
        return std::nullopt;
    }
    return command;
}

}  // namespace

Queue::Queue(WorkerContext& worker, std::unique_ptr<QueueIo> io, Options options,
             std::function<void()> ended)
    : worker_(worker),
      io_(std::move(io)),
      options_(std::move(options)),
      ended_(std::move(ended)),
      transfer_{*options_.exported->volume, worker.channels, staging_},
      payload_(*io_),
      admission_(options_.max_in_flight, worker.budget, *this),
      failure_log_(options_.device),
      counters_(worker.counters.begin({.peer = options_.device,
                                       .listener = "ublk",
                                       .export_name = options_.exported->info.name,
                                       .serving = true,
                                       .read_only = options_.exported->info.read_only})),
      of_export_(worker.counters.of_export(options_.exported->info.name)) {
    failure_log_.serve(options_.exported->info.name);
    GPUNBD_ASSERT(options_.depth != 0, "a queue has requests");
    kept_.reserve(options_.depth);
    const Request::Context context{transfer_, payload_, *this};
    for (std::uint32_t tag = 0; tag != options_.depth; ++tag) {
        requests_.push_back(std::make_unique<Request>(context, static_cast<std::uint16_t>(tag)));
    }
}

Queue::~Queue() { worker_.counters.end(*counters_); }

void Queue::begin() {
    for (storage::Device* device : options_.exported->volume->devices()) {
        worker_.channels.open(*device);
    }
    GPUNBD_ASSERT(commands_ == 0 && in_flight_ == 0, "a queue begins once");
    for (const auto& request : requests_) io_->fetch(request->tag());
    commands_ = options_.depth;
    io_->submit();
    io_->wait();
    Scheduler::may_be_light(*this);
}

void Queue::run() noexcept {
    GPUNBD_ASSERT(!running_, "a turn of a queue does not begin another one");
    const std::int64_t turn = worker_.scheduler.turn_of(*this);
    turn_left_ = turn;
    staging_.light = worker_.scheduler.is_light(*this);
    running_ = true;
    do {
        take();
        if (in_flight_ == 1) worker_.scheduler.submit_if_alone();
    } while (flush() && turn_left_ > 0);
    running_ = false;
    worker_.scheduler.count(*this, turn - turn_left_);
    report_if_quiet();
    report_end_if_over();
}

// Returns true if there were answers: the kernel may have sent more requests meanwhile.
bool Queue::flush() {
    if (!std::exchange(answered_, false)) return false;
    storage::store_fence();  // later reads of other clients see the answered writes
    io_->submit();
    if (in_flight_ == 0) worker_.scheduler.expect_next_soon();
    return true;
}

void Queue::take() {
    if (held_ != nullptr) {
        if (!taking_) {
            admission_.withdraw();
        } else if (admission_.due()) {
            admission_.release();
        } else {
            return;
        }
        execute(*std::exchange(held_, nullptr));
    }
    if (!taking_) return keep_arriving();
    while (held_ == nullptr) {
        if (turn_left_ <= 0) return worker_.scheduler.run_soon(*this);
        if (!admission_.may_take()) return;
        if (!kept_.empty()) {
            const std::uint16_t tag = kept_.back();
            kept_.pop_back();
            take_request(*requests_[tag]);
            continue;
        }
        const std::optional<QueueIo::Completion> next = io_->next();
        if (!next) return io_->wait();
        GPUNBD_ASSERT(commands_ != 0 && next->tag < requests_.size(),
                      "the kernel completes the commands that it has");
        --commands_;
        if (next->result == 0) take_request(*requests_[next->tag]);
    }
}

// The kernel sends requests that were passed to this thread to the next server. Linux 6.12 loses
// those that it has queued for the thread, but not passed on, when the thread ends.
void Queue::keep_arriving() {
    while (const std::optional<QueueIo::Completion> next = io_->next()) {
        GPUNBD_ASSERT(commands_ != 0 && next->tag < requests_.size(),
                      "the kernel completes the commands that it has");
        --commands_;
        if (next->result == 0) kept_.push_back(next->tag);
    }
    io_->wait();
}

void Queue::take_request(Request& request) {
    GPUNBD_ASSERT(held_ == nullptr && taking_, "requests are taken one after the other");
    GPUNBD_ASSERT(in_flight_ < requests_.size(), "each tag has one request at a time");
    if (in_flight_++ == 0) worker_.scheduler.begins_work(*this);
    request.received_at = storage::TraceClock::now();
    counters_->requests.add();
    counters_->in_flight.set(in_flight_);
    const Descriptor descriptor = io_->descriptor(request.tag());
    const auto command = command_of(descriptor, options_.exported->info);
    if (!command) {
        spdlog::warn("{}: the kernel sent an invalid request: operation {}, sector {}, {} sectors",
                     options_.device, descriptor.operation_and_flags & operation_mask,
                     descriptor.start_sector, descriptor.sectors);
        return refuse(request, io_error);
    }
    request.prepare(*command, cost_of(*command, transfer_.volume.page_size()));
    if (admission_.keeps(*command)) {
        of_export_->held_back.add();
        held_ = &request;
        return;
    }
    execute(request);
}

void Queue::execute(Request& request) {
    // The kernel's device keeps its size when the export shrinks.
    const Command& command = request.command();
    if (!protocol::lies_in(transfer_.volume.size(), command.offset, command.length)) {
        return refuse(request, protocol::stores(command.type) ? no_space : io_error);
    }
    turn_left_ -= request.cost().turn;
    of_export_->of(request.command().type).in_flight.add();
    admission_.enter(request.cost());
    request.waits.begin(std::max(worker_.channels.now(), request.received_at));
    request.start();
}

void Queue::ended(Request& request, Status status) {
    if (admission_.leave(request.cost())) worker_.scheduler.run_soon(*this);
    const Command& command = request.command();
    of_export_->of(command.type).in_flight.subtract();
    std::int32_t result = 0;
    if (status == Status::ok) {
        count_end(request);
        if (command.type == CommandType::read || command.type == CommandType::write) {
            result = static_cast<std::int32_t>(command.length);
        }
    } else {
        RequestCounters& counters = of_export_->of(command.type);
        counters.count_answer(0);
        counters.failed(wire_error(status));
        of_export_->longest.add(static_cast<std::uint32_t>(command.type), request.received_at,
                                request.waits, storage::TraceClock::now());
        counters_->errors.add();
        // An exception would make the request end twice.
        storage::log_if_possible(
            [&] { failure_log_.report_failure(command, status, transfer_.volume); });
        result = -static_cast<std::int32_t>(wire_error(status));
    }
    answer(request, result);
}

void Queue::refuse(Request& request, std::int32_t result) {
    turn_left_ -= request_work;
    counters_->errors.add();
    answer(request, result);
}

void Queue::answer(Request& request, std::int32_t result) {
    io_->answer(request.tag(), result);
    GPUNBD_ASSERT(in_flight_ != 0, "a request is answered once");
    ++commands_;
    GPUNBD_ASSERT(commands_ + in_flight_ - 1 + kept_.size() <= requests_.size(),
                  "each tag is with the kernel or with the server");
    answered_ = true;
    if (--in_flight_ == 0) worker_.scheduler.ends_work(*this);
    counters_->in_flight.set(in_flight_);
    if (!running_) worker_.scheduler.run_soon(*this);
}

void Queue::count_end(const Request& request) {
    const Command& command = request.command();
    const auto now = storage::TraceClock::now();
    const auto took = now - request.received_at;
    RequestCounters& counters = of_export_->of(command.type);
    counters.count_answer(command.length);
    counters.latency.record(took);
    of_export_->longest.add(static_cast<std::uint32_t>(command.type), request.received_at,
                            request.waits, now);
    if (worker_.trace != nullptr) worker_.trace->answered(command.type, took);
    ActivityMap& activity = *options_.exported->activity;
    switch (command.type) {
        case CommandType::read:
            counters_->read.add(command.length);
            return activity.read(command.offset, command.length);
        case CommandType::write:
            counters_->written.add(command.length);
            return activity.written(command.offset, command.length);
        case CommandType::trim:
        case CommandType::write_zeroes:
            return activity.written(command.offset, command.length);
        default:
            return;
    }
}

void Queue::pause(std::function<void()> quiet) {
    taking_ = false;
    quiet_ = std::move(quiet);
    worker_.scheduler.run_soon(*this);
}

void Queue::resume() {
    taking_ = true;
    quiet_ = nullptr;
    worker_.scheduler.run_soon(*this);
}

void Queue::report_if_quiet() {
    if (quiet_ && in_flight_ == 0) std::exchange(quiet_, nullptr)();
}

void Queue::report_end_if_over() {
    if (over_ || in_flight_ != 0 || commands_ != 0 || !kept_.empty()) return;
    GPUNBD_ASSERT(held_ == nullptr && !answered_, "a queue ends after its last answer was sent");
    over_ = true;
    ended_();
}

}  // namespace gpunbd::server::ublk
