#include "server/ublk/device.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <boost/asio/post.hpp>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <stdexcept>
#include <thread>
#include <utility>

#include "config/quote.hpp"
#include "server/base/wait_memory.hpp"
#include "server/protection/protection.hpp"
#include "server/ublk/uring_queue_io.hpp"
#include "storage/assertions/assert.hpp"

namespace gpunbd::server::ublk {

namespace {

// Devices with chosen ids are looked for below this id.
constexpr std::uint32_t searched_ids = 64;

std::uint32_t queues_of(const config::UblkOptions& options, std::size_t workers) {
    const auto most = std::min<std::size_t>(workers, config::UblkOptions::default_queues);
    return options.queues.value_or(static_cast<std::uint32_t>(most));
}

}  // namespace

bool continues(const Export& exported, const DeviceInfo& device) {
    const config::UblkOptions& options = exported.options.ublk;
    return options.enabled && options.id.value_or(device.id) == device.id &&
           exported.contents_outlive_server() && Mark(device.mark) == Mark(exported);
}

// A queue on its worker. Shared with the calls that the worker has not executed yet.
struct Device::Slot {
    std::uint16_t number = 0;
    Worker* worker = nullptr;
    std::unique_ptr<Queue> queue;  // the worker's thread only
    std::promise<void> opened;
    std::promise<void> ended;
    std::future<void> has_ended;
    std::future<void> is_quiet;  // after pause()
    std::shared_ptr<WaitMemory> memory = std::make_shared<WaitMemory>();
};

Device::Device(Control& control, const std::vector<std::unique_ptr<Worker>>& workers,
               Options options)
    : control_(control), workers_(workers), options_(std::move(options)) {
    auto entered = options_.exported->use->enter("ublk");
    if (!entered.lease) fail(entered.refusal);
    lease_ = std::move(entered.lease);
    const Mark mark(*options_.exported);
    try {
        find_left(mark);
        if (recovered_) {
            recover();
        } else {
            add(mark);
        }
        open_character_device();
        open_queues();
        start();
    } catch (...) {
        if (recovered_) {
            close_queues();  // its requests wait for another attempt
        } else {
            remove();
        }
        throw;
    }
}

Device::~Device() {
    if (!leaving_) remove();
    for (const auto& slot : slots_) slot->queue.reset();  // its callback refers to the slot
}

void Device::find_left(Mark mark) {
    const auto wanted = options_.exported->options.ublk.id;
    const std::uint32_t end = wanted.value_or(searched_ids - 1) + 1;
    for (std::uint32_t id = wanted.value_or(0); id != end; ++id) {
        const std::optional<DeviceInfo> found = settled_info(control_, id, false);
        if (!found) continue;
        const Mark its(found->mark);
        const bool ours = its.is_gpunbd() && its.same_name(mark);
        const bool waits = found->state == DeviceState::quiesced;
        if (waits && continues(*options_.exported, *found)) {
            info_ = *found;
            recovered_ = true;
            return;
        }
        // Another server may be about to continue a device that waits, unless its id is this one's.
        const bool abandoned = waits ? wanted || its.same_contents(mark)
                                     : found->state == DeviceState::dead && !has_server(id);
        if (ours && abandoned) {
            replace(id);
        } else if (wanted) {
            fail_taken(id);
        }
    }
}

void Device::replace(std::uint32_t id) {
    spdlog::warn("{}: its server has ended, and its contents are gone or changed; it is replaced",
                 block_path(id));
    remove_abandoned(control_, id);
}

void Device::recover() {
    const auto limit = std::chrono::steady_clock::now() + settling_patience;
    for (;;) {
        const int result = control_.start_recovery(info_.id);
        if (result == 0) break;
        if (result != -EBUSY || std::chrono::steady_clock::now() > limit) {
            fail_step("START_USER_RECOVERY", result);
        }
        std::this_thread::sleep_for(settling_interval);
    }
    exists_ = true;
}

void Device::add(Mark mark) {
    const config::UblkOptions& wanted = options_.exported->options.ublk;
    info_ = {
        .queues = static_cast<std::uint16_t>(queues_of(wanted, workers_.size())),
        .depth = static_cast<std::uint16_t>(wanted.depth),
        .max_request = max_request,
        .id = wanted.id.value_or(~0U),
        .features =
            feature::user_copy | feature::ioctl_encoding |
            (options_.recoverable ? feature::user_recovery | feature::user_recovery_reissue : 0),
        .mark = mark.value};
    const int added = control_.add(info_);
    if (added == -EEXIST && wanted.id) fail_taken(*wanted.id);
    if (added != 0) fail_step("ADD_DEV", added);
    exists_ = true;
    const int result = control_.set_parameters(info_.id, parameters_of(*options_.exported));
    if (result != 0) fail_step("SET_PARAMS", result);
}

void Device::open_character_device() {
    path_ = block_path(info_.id);
    const std::string path = character_path(info_.id);
    character_device_ = OwnedFd(::open(path.c_str(), O_RDWR | O_CLOEXEC));
    if (!character_device_) fail_step(path.c_str(), -errno);
}

void Device::open_queues() {
    GPUNBD_ASSERT(slots_.empty() && exists_, "the queues of a device are opened once");
    std::vector<std::future<void>> opened;
    for (std::uint16_t number = 0; number != info_.queues; ++number) {
        const auto slot = std::make_shared<Slot>();
        slot->number = number;
        slot->worker = workers_[number % workers_.size()].get();
        slot->has_ended = slot->ended.get_future();
        opened.push_back(slot->opened.get_future());
        slots_.push_back(slot);
        slot->worker->post([this, slot](WorkerContext& worker) { open_queue(slot, worker); });
    }
    for (std::future<void>& each : opened) each.wait();
    for (std::future<void>& each : opened) {
        try {
            each.get();
        } catch (const std::exception& error) {
            fail(error.what());
        }
    }
}

// On the worker's thread.
void Device::open_queue(const std::shared_ptr<Slot>& slot, WorkerContext& worker) const {
    try {
        // The kernel may wait for this thread when it needs memory.
        if (const auto problem = become_io_flusher()) spdlog::warn("{}: {}", path_, *problem);
        auto io = std::make_unique<UringQueueIo>(worker, character_device_.get(), slot->number,
                                                 info_.depth);
        UringQueueIo& its_io = *io;
        // The queue is destroyed by a later call, since it calls this itself.
        const auto ended = [slot, &loop = worker.io] {
            boost::asio::post(loop, within(slot->memory, [slot] {
                                  slot->queue.reset();
                                  slot->ended.set_value();
                              }));
        };
        slot->queue =
            std::make_unique<Queue>(worker, std::move(io),
                                    Queue::Options{.device = path_,
                                                   .depth = info_.depth,
                                                   .max_in_flight = options_.max_in_flight,
                                                   .exported = options_.exported},
                                    ended);
        its_io.notify(*slot->queue);
        slot->queue->limit_rates(lease_->rates());
        slot->queue->begin();
        slot->opened.set_value();
    } catch (...) {
        slot->queue.reset();
        slot->ended.set_value();
        slot->opened.set_exception(std::current_exception());
    }
}

void Device::start() {
    const int result = recovered_ ? control_.end_recovery(info_.id) : control_.start(info_.id);
    if (result != 0) fail_step(recovered_ ? "END_USER_RECOVERY" : "START_DEV", result);
}

void Device::fail(std::string_view reason) const {
    throw std::runtime_error(fmt::format("export {}: ublk: {}",
                                         config::in_quotes(options_.exported->info.name), reason));
}

void Device::fail_step(const char* step, int result) const {
    if (result == -EPERM) {
        fail(fmt::format(
            "{}: the server needs CAP_SYS_ADMIN; the kernel offers devices of unprivileged servers "
            "(UBLK_F_UNPRIVILEGED_DEV) only without UBLK_F_USER_COPY",
            step));
    }
    fail(fmt::format("{}: {}", step, std::strerror(-result)));
}

void Device::fail_taken(std::uint32_t id) const {
    fail(fmt::format("the id {} is taken; use another id, or remove that device", id));
}

void Device::update_rates() {
    for (const auto& slot : slots_) {
        slot->worker->post([slot, rates = lease_->rates()](WorkerContext&) {
            if (slot->queue) slot->queue->limit_rates(rates);
        });
    }
}

void Device::remove() noexcept {
    if (!exists_) return;
    GPUNBD_ASSERT(!leaving_, "a device that is left to the next server is not removed");
    exists_ = false;
    const bool used = in_use();
    if (const int result = control_.stop(info_.id); result != 0) {
        spdlog::error("{}: STOP_DEV: {}", path_, std::strerror(-result));
        close_queues();
    }
    for (const auto& slot : slots_) slot->has_ended.wait();
    slots_.clear();
    character_device_ = OwnedFd();
    if (used) return;  // DEL_DEV would wait for its users; the next server executes it
    if (const int result = control_.remove(info_.id); result != 0) {
        spdlog::error("{}: DEL_DEV: {}", path_, std::strerror(-result));
    }
}

void Device::pause() {
    for (const auto& slot : slots_) {
        const auto quiet = std::make_shared<std::promise<void>>();
        GPUNBD_ASSERT(slot->worker != nullptr, "each queue has a worker");
        slot->is_quiet = quiet->get_future();
        slot->worker->post([slot, quiet](WorkerContext&) {
            if (slot->queue) {
                slot->queue->pause([quiet] { quiet->set_value(); });
            } else {
                quiet->set_value();
            }
        });
    }
}

bool Device::paused() const {
    return std::all_of(slots_.begin(), slots_.end(), [](const auto& slot) {
        return slot->is_quiet.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
    });
}

void Device::resume() {
    GPUNBD_ASSERT(!leaving_, "a device that has been left stays paused");
    for (const auto& slot : slots_) {
        slot->worker->post([slot](WorkerContext&) {
            if (slot->queue) slot->queue->resume();
        });
    }
}

void Device::leave() {
    leaving_ = true;
    pause();
}

void Device::close_queues() {
    for (const auto& slot : slots_) {
        std::promise<void> closed;
        slot->worker->post([&](WorkerContext&) {
            slot->queue.reset();
            closed.set_value();
        });
        closed.get_future().wait();
    }
    slots_.clear();
}

}  // namespace gpunbd::server::ublk
