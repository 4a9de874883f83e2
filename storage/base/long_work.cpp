#include "storage/base/long_work.hpp"

#include <list>
#include <utility>

#include "storage/base/mutex.hpp"

namespace gpunbd::storage {

namespace {

struct Board {
    Mutex mutex;
    std::list<const LongWork*> works GUARDED_BY(mutex);
};

Board& board() {
    static Board of_process;
    return of_process;
}

}  // namespace

LongWork::LongWork(const char* what, std::string of, std::uint64_t total, const char* unit)
    : what_(what), of_(std::move(of)), total_(total), unit_(unit) {
    const Lock lock(board().mutex);
    board().works.push_back(this);
}

LongWork::~LongWork() {
    const Lock lock(board().mutex);
    board().works.remove(this);
}

std::vector<LongWork::Progress> LongWork::in_progress() {
    std::vector<Progress> out;
    const Lock lock(board().mutex);
    for (const LongWork* const work : board().works) {
        out.push_back({.what = work->what_,
                       .of = work->of_,
                       .done = work->done_.load(std::memory_order_relaxed),
                       .total = work->total_,
                       .unit = work->unit_,
                       .began = work->began_});
    }
    return out;
}

}  // namespace gpunbd::storage
