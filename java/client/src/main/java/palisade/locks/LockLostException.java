package palisade.locks;

/** The lock was held, and no longer is: stop the work that it protects. */
public final class LockLostException extends PalisadeException {

    private static final long serialVersionUID = 1L;

    private final transient Loss loss;

    LockLostException(Loss loss) {
        super(loss.toString());
        this.loss = loss;
    }

    /**
     * Returns why the lock was lost.
     *
     * @return the loss
     */
    public Loss loss() {
        return loss;
    }

}
