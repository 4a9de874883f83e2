#include "server/operations/operation.hpp"

#include <new>

namespace gpunbd::server {

void Operation::transfer_moved(storage::Transfer&) {
    OperationContext& context = *context_;  // the operation may be gone after
    try {
        moved();
    } catch (const std::bad_alloc&) {
        context.run_out_of_memory();
    }
}

}  // namespace gpunbd::server
